// kernels/cpu/ops/lanes_avx512.h: owns the lanes of AVX-512, 16 outputs per vector, for matmul_loops.h,
// attention_loops.h, scan_loops.h and delta_loops.h. Included inside the target.
//
// A pair's odd half is the word with its low half cleared, its even half the word shifted up: N3's two fma.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/ops/row_ops.h"
#include "kernels/pair.h"

namespace verbatim::cpu {
namespace {

struct Avx512 {
    static constexpr int kCount = 16;
    static constexpr int kVectors = 4;  // per register tile
    static constexpr BandShape kBands = kWideBands;
    static constexpr int kRows = 6;  // rows x vectors accumulators of 32 registers, with registers left for the weights
    static constexpr int kScanTokens = 4;  // in parallel: their values and 16 rows of the state fit the registers
    using Floats = __m512;
    using Words = __m512i;
    // Vector operators, because GCC 12 reports the shift intrinsic as a read of an uninitialised value.
    using Bits = uint32_t __attribute__((vector_size(64)));

    static Floats zero() { return _mm512_setzero_ps(); }
    static Floats broadcast(float x) { return _mm512_set1_ps(x); }
    static Floats load(const float* x) { return _mm512_loadu_ps(x); }
    static void store(float* x, Floats v) { _mm512_storeu_ps(x, v); }
    static Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
    static Floats sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
    static Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
    static Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
    static bool all_zero(Floats v) { return _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_NEQ_UQ) == 0; }
    static Floats max(Floats a, Floats b) { return a > b ? a : b; }  // b if either is a NaN
    static bool any_nan(Floats v) { return _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q) != 0; }
    static __m256 lower(Floats v) { return __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7); }
    static __m256 upper(Floats v) { return __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15); }
    static float greatest(Floats v) {  // REQUIRES: no NaN
        const __m256 eight = _mm256_max_ps(lower(v), upper(v));
        const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
        const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
    }
    // NUMERICS N4's halving: lane j += lane j + 8, then 4, 2, 1.
    static float halve(Floats v) {
        const __m256 eight = _mm256_add_ps(lower(v), upper(v));
        const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
        const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
    }
    static Words load_words(const Pair* x) { return _mm512_loadu_si512(x); }
    // The halves as binary32.
    static Floats odd_of(Words pairs) { return (Floats)((Bits)pairs & 0xFFFF0000U); }
    static Floats even_of(Words pairs) { return (Floats)((Bits)pairs << 16); }
    static Words even_only(Words pairs) { return (Words)((Bits)pairs & 0xFFFFU); }

    // Both bytes of each as bf16, by adding them to 2^23, where they are the last mantissa byte (pair.h).
    static Words widen(const Int8Pair* x) {
        using Narrow = uint16_t __attribute__((vector_size(32)));
        Narrow narrow;
        std::memcpy(&narrow, x, sizeof(narrow));
        const Bits both = __builtin_convertvector(narrow, Bits);
        const Floats even = (Floats)((both & 0xFFU) | kInt8Magic) - kInt8Offset;
        const Floats odd = (Floats)(both >> 8 | kInt8Magic) - kInt8Offset;
        return (Words)((Bits)even >> 16 | (Bits)odd);
    }

    // int8 as binary32. Masks of ones, because GCC 12 reports the plain intrinsics as reads of uninitialised values and
    // turns __builtin_convertvector into scalar instructions.
    static Floats widen_bytes(const std::byte* x) {
        const __m128i narrow = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
        return _mm512_maskz_cvtepi32_ps(0xFFFF, _mm512_maskz_cvtepi8_epi32(0xFFFF, narrow));
    }
    static Bits load_bytes(const std::byte* x) {
        const __m128i narrow = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
        return (Bits)_mm512_maskz_cvtepu8_epi32(0xFFFF, narrow);
    }
    // The 16 values of a nibble: a permutation reads the lowest four bits of a word.
    using Nibbles = Floats;
    static Nibbles nibbles(float first) {
        return Floats{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} + broadcast(first);
    }
    static Floats low_nibbles(Bits words, Nibbles values) {
        return _mm512_maskz_permutexvar_ps(0xFFFF, (Words)words, values);
    }

    // The element type of rows for the dot products: binary32, two per pair.
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
