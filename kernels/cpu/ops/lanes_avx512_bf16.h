// kernels/cpu/ops/lanes_avx512_bf16.h: owns lanes_avx512.h's lanes with VDPBF16PS for the dot products: N3's two fma in
// one instruction, odd first, rounded to nearest even. It flushes subnormals, which cannot occur (NUMERICS N2, N3).
#pragma once

#include "kernels/cpu/ops/lanes_avx512.h"

namespace verbatim::cpu {
namespace {

struct Avx512Bf16 : Avx512 {
    using Element = Pair;
    static constexpr int64_t kPerPair = 1;
    template <int num, int vectors>
    static inline __attribute__((always_inline)) void dot_pair(const Element* a, int64_t stride,
                                                               const Words (&w)[vectors], Floats (&acc)[num][vectors]) {
        for (int r = 0; r < num; ++r) {
            const Words pair = _mm512_set1_epi32(static_cast<int>(a[r * stride]));
            for (int v = 0; v < vectors; ++v) acc[r][v] = _mm512_dpbf16_ps(acc[r][v], (__m512bh)pair, (__m512bh)w[v]);
        }
    }
};

}  // namespace
}  // namespace verbatim::cpu
