// kernels/pair.h: owns the pair: two bf16 values in one word, the unit in which NUMERICS N3 adds: element 2j in the low
// half, 2j + 1 in the high half. VDPBF16PS reads it directly, and two shifts turn it into two binary32.
#pragma once

#include <cstdint>

#include "reference/numerics/float_bits.h"

namespace verbatim {

using Pair = uint32_t;

// For the fast profile: element 2j in the low byte, 2j + 1 in the high one, each with 128 added. As the low mantissa
// byte under the exponent of 2^23, a byte b is the binary32 2^23 + b, so one subtraction yields its value, which fits a
// bf16.
using Int8Pair = uint16_t;
inline constexpr int32_t kInt8Bias = 128;
inline constexpr uint32_t kInt8Magic = 0x4B000000U;
inline constexpr float kInt8Offset = 0x1p+23F + kInt8Bias;

constexpr Pair make_pair_of(uint16_t even, uint16_t odd) { return Pair{even} | Pair{odd} << 16; }
// Of binary32 that are numbers of bf16.
constexpr Pair make_pair_of(float even, float odd) {
    return reference::bits_from_float(even) >> 16 | reference::bits_from_float(odd);
}
constexpr float even_of(Pair pair) { return reference::float_from_bits(pair << 16); }
constexpr float odd_of(Pair pair) { return reference::float_from_bits(pair & 0xFFFF0000u); }
constexpr uint16_t even_bits(Pair pair) { return static_cast<uint16_t>(pair); }
constexpr uint16_t odd_bits(Pair pair) { return static_cast<uint16_t>(pair >> 16); }

constexpr int64_t num_pairs(int64_t count) { return (count + 1) / 2; }

}  // namespace verbatim
