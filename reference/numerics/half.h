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

}  // namespace verbatim::reference
