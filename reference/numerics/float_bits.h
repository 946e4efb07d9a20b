// reference/numerics/float_bits.h: the bits of a float and back, on host and device.
#pragma once

#include <cstdint>

#include "reference/numerics/host_device.h"

namespace verbatim::reference {

VERBATIM_HOST_DEVICE constexpr uint32_t bits_from_float(float x) { return __builtin_bit_cast(uint32_t, x); }
VERBATIM_HOST_DEVICE constexpr float float_from_bits(uint32_t bits) { return __builtin_bit_cast(float, bits); }
VERBATIM_HOST_DEVICE constexpr uint64_t bits_from_double(double x) { return __builtin_bit_cast(uint64_t, x); }
VERBATIM_HOST_DEVICE constexpr double double_from_bits(uint64_t bits) { return __builtin_bit_cast(double, bits); }

inline constexpr uint32_t kQuietNanBits = 0x7FC00000u;

VERBATIM_HOST_DEVICE constexpr bool is_nan(float x) { return (bits_from_float(x) & 0x7FFFFFFFu) > 0x7F800000u; }
VERBATIM_HOST_DEVICE constexpr bool is_finite(float x) { return (bits_from_float(x) & 0x7F800000u) != 0x7F800000u; }

}  // namespace verbatim::reference
