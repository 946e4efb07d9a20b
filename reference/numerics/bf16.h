// reference/numerics/bf16.h: bfloat16 as stored bits (the upper half of a binary32), and the one rounding to it
// (NUMERICS N2).
//
//   R1  round_to_bf16 is to nearest even, by integer arithmetic
//   R2  |x| < 2^-56 becomes +0, so -0 and subnormals never come out; NaN becomes 0x7FC0; overflow becomes infinity
//   R3  rounding is idempotent
// R2 makes every nonzero product of two stored values a multiple of 2^-126: inside a dot product subnormals cannot
//    occur, and hardware that flushes them (VDPBF16PS) agrees with hardware that does not.
#pragma once

#include <cstdint>

#include "reference/numerics/float_bits.h"

namespace verbatim::reference {

VERBATIM_HOST_DEVICE constexpr float bf16_to_float(uint16_t bits) { return float_from_bits(uint32_t{bits} << 16); }

VERBATIM_HOST_DEVICE constexpr uint16_t round_to_bf16(float x) {
    constexpr uint32_t kSmallest = (127u - 56u) << 23;  // 2^-56
    const uint32_t bits = bits_from_float(x);
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    // Adding half of the last kept bit, less one when the kept part is even, rounds to nearest even; a carry runs into
    // the exponent, and out of the largest one into infinity's pattern.
    const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t flushed = magnitude < kSmallest ? 0u : rounded;
    return static_cast<uint16_t>(magnitude > 0x7F800000u ? 0x7FC0u : flushed);
}

// A stored value in the profile's form: applies R2 to values that are bf16 already.
VERBATIM_HOST_DEVICE constexpr uint16_t flush_bf16(uint16_t bits) { return round_to_bf16(bf16_to_float(bits)); }

// The binary32 that has the value of x rounded to bf16.
VERBATIM_HOST_DEVICE constexpr float bf16_value(float x) { return bf16_to_float(round_to_bf16(x)); }

}  // namespace verbatim::reference
