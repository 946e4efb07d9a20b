// reference/numerics/half.h: IEEE binary16 as stored bits (fp16 of checkpoints and of blocks of quantised weights).
#pragma once

#include <cstdint>

#include "reference/numerics/float_bits.h"

namespace verbatim::reference {

// The binary32 bits of the same number: exact, also for subnormals; a NaN keeps its payload.
VERBATIM_HOST_DEVICE constexpr uint32_t widen_half(uint16_t half) {
    const uint32_t sign = (uint32_t{half} & 0x8000u) << 16;
    const uint32_t exponent = (half >> 10) & 31u;
    const uint32_t mantissa = half & 1023u;
    if (exponent == 31) return sign | 0x7F80'0000u | mantissa << 13;
    if (exponent != 0) return sign | (exponent + 127 - 15) << 23 | mantissa << 13;
    return sign | bits_from_float(static_cast<float>(mantissa) * 0x1p-24f);
}

VERBATIM_HOST_DEVICE constexpr float half_to_float(uint16_t half) { return float_from_bits(widen_half(half)); }

// binary32 to nearest even; overflow becomes infinity, NaN a quiet NaN of its sign.
VERBATIM_HOST_DEVICE constexpr uint16_t round_to_half(float x) {
    const uint32_t bits = bits_from_float(x);
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t magnitude = bits & 0x7FFF'FFFFu;
    if (magnitude > 0x7F80'0000u) return static_cast<uint16_t>(sign | 0x7E00u);
    if (magnitude >= bits_from_float(65520.0F)) return static_cast<uint16_t>(sign | 0x7C00u);
    // Below the least normal half the unit is 2^-24: adding 0.5 rounds to it.
    if (magnitude < bits_from_float(0x1p-14F))
        return static_cast<uint16_t>(sign | (bits_from_float(float_from_bits(magnitude) + 0.5F) & 0xFFFFu));
    const uint32_t normal = magnitude - (112u << 23);
    return static_cast<uint16_t>(sign | (normal + 0xFFFu + (normal >> 13 & 1u)) >> 13);
}

}  // namespace verbatim::reference
