// kernels/cpu/ops/lanes_avx2.h: owns the lanes of AVX2, 8 outputs per vector, for matmul_loops.h, attention_loops.h,
// scan_loops.h and delta_loops.h. Included inside the target. Like lanes_avx512.h with half the width and half the
// registers.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/ops/row_ops.h"
#include "kernels/pair.h"

namespace verbatim::cpu {
namespace {

struct Avx2 {
    static constexpr int kCount = 8;
    static constexpr int kVectors = 2;
    static constexpr BandShape kBands = kNarrowBands;
    static constexpr int kRows = 4;        // 8 accumulators of 16 registers
    static constexpr int kScanTokens = 1;  // in parallel: 16 rows of the state fill the registers
    using Floats = __m256;
    using Words = __m256i;
    using Bits = uint32_t __attribute__((vector_size(32)));

    static Floats zero() { return _mm256_setzero_ps(); }
    static Floats broadcast(float x) { return _mm256_set1_ps(x); }
    static Floats load(const float* x) { return _mm256_loadu_ps(x); }
    static void store(float* x, Floats v) { _mm256_storeu_ps(x, v); }
    static Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
    static Floats sub(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
    static Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
    static Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
    static bool all_zero(Floats v) {
        return _mm256_movemask_ps(_mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_NEQ_UQ)) == 0;
    }
    static Floats max(Floats a, Floats b) { return _mm256_max_ps(a, b); }  // b if either is a NaN
    static bool any_nan(Floats v) { return _mm256_movemask_ps(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)) != 0; }
    static float greatest(Floats v) {  // REQUIRES: no NaN
        const __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
        const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
    }
    // NUMERICS N4's halving: lane j += lane j + 4, then 2, 1.
    static float halve(Floats v) {
        const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
        const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
    }
    static Words load_words(const Pair* x) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)); }
    // The halves as binary32; the odd one by two shifts: a mask would occupy a register.
    static Floats odd_of(Words pairs) { return (Floats)_mm256_slli_epi32(_mm256_srli_epi32(pairs, 16), 16); }
    static Floats even_of(Words pairs) { return (Floats)((Bits)pairs << 16); }
    static Words even_only(Words pairs) { return (Words)((Bits)pairs & 0xFFFFU); }

    static Words widen(const Int8Pair* x) {
        const Bits both = (Bits)_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
        const Floats even = (Floats)((both & 0xFFU) | kInt8Magic) - kInt8Offset;
        const Floats odd = (Floats)(both >> 8 | kInt8Magic) - kInt8Offset;
        return (Words)((Bits)even >> 16 | (Bits)odd);
    }

    static Floats widen_bytes(const std::byte* x) {
        return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(x))));
    }
    static Bits load_bytes(const std::byte* x) {
        return (Bits)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(x)));
    }
    using Nibbles = Floats;  // the value of 0
    static Nibbles nibbles(float first) { return broadcast(first); }
    static Floats low_nibbles(Bits words, Nibbles first) { return _mm256_cvtepi32_ps((Words)(words & 15U)) + first; }

    using Element = float;
    static constexpr int64_t kPerPair = 2;
    template <int num, int vectors>
    static inline __attribute__((always_inline)) void dot_pair(const Element* a, int64_t stride,
                                                               const Words (&w)[vectors], Floats (&acc)[num][vectors]) {
        for (int r = 0; r < num; ++r) {
            const Floats odd = broadcast(a[r * stride + 1]);
            for (int v = 0; v < vectors; ++v) acc[r][v] = fma(odd, odd_of(w[v]), acc[r][v]);
        }
        for (int r = 0; r < num; ++r) {
            const Floats even = broadcast(a[r * stride]);
            for (int v = 0; v < vectors; ++v) acc[r][v] = fma(even, even_of(w[v]), acc[r][v]);
        }
    }
};

}  // namespace
}  // namespace verbatim::cpu
