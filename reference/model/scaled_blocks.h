// reference/model/scaled_blocks.h: the blocks that quantised matrices of safetensors files become when they are loaded
// (reference/loader/quantised_tensors.h): 32 neighbouring weights of a row under one binary32 scale.
//
//   INT8       scale [4], q [32] of int8                                        scale · q
//   INT4       scale [4], q [16]                                                scale · (q − 8)
//   INT4_ZERO  scale [4], zero [1], q [16]                                      scale · (q − zero), zero up to 16
//   FP8_E4M3   scale [4], q [32] of e4m3 (OCP, the variant without infinity)    scale · q
//   FP4_E2M1   two scales [8], of 16 weights each, q [16] of e2m1                scale · q
//   INT_ORDER  the weights [128] in binary32, of integers whose groups are not neighbours (act-order)
// In q [16] weight 2j is in the low nibble of byte j, weight 2j + 1 in the high one. Each value is one product, rounded
// once to binary32.
#pragma once

#include <array>
#include <cstdint>

#include "reference/model/quantised_blocks.h"

namespace verbatim::reference {

inline constexpr int32_t kScaledWeights = 32;  // of a block

extern const BlockFormat kScaledInt8;
extern const BlockFormat kScaledInt4;
extern const BlockFormat kScaledInt4Zero;
extern const BlockFormat kScaledFp8;
extern const BlockFormat kScaledFp4;  // the CPU's kernels do not repack these two
extern const BlockFormat kOrderedIntegers;
// Those that the CPU's kernels repack.
inline std::array<const BlockFormat*, 4> scaled_formats() {
    return {&kScaledInt8, &kScaledInt4, &kScaledInt4Zero, &kScaledFp8};
}

// The number that the byte stands for; exact. 0x7F and 0xFF are NaN.
float e4m3_value(uint8_t bits);

}  // namespace verbatim::reference
