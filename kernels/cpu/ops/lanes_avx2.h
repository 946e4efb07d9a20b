// kernels/cpu/ops/lanes_avx2.h: 8 outputs per vector, for matmul_loops.h, attention_loops.h and scan_loops.h. Included
// inside the target. As lanes_avx512.h, with half the width and half the registers.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/pair.h"

namespace verbatim::cpu {
namespace {

struct Avx2 {
    static constexpr int kCount = 8;
    static constexpr int kVectors = 2;
    static constexpr int kRows = 4;  // 8 accumulators of 16 registers
    using Floats = __m256;
    using Words = __m256i;
    using Bits = uint32_t __attribute__((vector_size(32)));

    static Floats zero() { return _mm256_setzero_ps(); }
    static Floats broadcast(float x) { return _mm256_set1_ps(x); }
    static Floats load(const float* x) { return _mm256_loadu_ps(x); }
    static void store(float* x, Floats v) { _mm256_storeu_ps(x, v); }
    static Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
    static Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
    static Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
    static bool all_zero(Floats v) {
        return _mm256_movemask_ps(_mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_NEQ_UQ)) == 0;
    }
    static Words load_words(const Pair* x) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)); }
    static Words even_only(Words pairs) { return (Words)((Bits)pairs & 0xFFFFU); }

    using Element = float;
    static constexpr int64_t kPerPair = 2;
    template <int num, int vectors>
    static inline __attribute__((always_inline)) void dot_pair(const Element* a, int64_t stride,
                                                               const Words (&w)[vectors], Floats (&acc)[num][vectors]) {
        for (int r = 0; r < num; ++r) {
            const Floats odd = broadcast(a[r * stride + 1]);
            for (int v = 0; v < vectors; ++v) acc[r][v] = fma(odd, (Floats)((Bits)w[v] & 0xFFFF0000U), acc[r][v]);
        }
        for (int r = 0; r < num; ++r) {
            const Floats even = broadcast(a[r * stride]);
            for (int v = 0; v < vectors; ++v) acc[r][v] = fma(even, (Floats)((Bits)w[v] << 16), acc[r][v]);
        }
    }
};

}  // namespace
}  // namespace verbatim::cpu
