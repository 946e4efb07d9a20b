// reference/numerics/fp8.h: e4m3 (OCP FP8 without infinity), in which exact.fp8 multiplies activations and weights.
//
// Sign, four bits of exponent with bias 7, three of mantissa: multiples of 2^-9 up to 448. The product of two is exact
// in binary32.
#pragma once

#include <cstdint>

#include "reference/numerics/constants.h"
#include "reference/numerics/float_bits.h"

namespace verbatim::reference {

inline constexpr float kGreatestE4m3 = 448.0F;

// Which activations share a scale: none are FP8, each group of kFp8Group columns of a row (a row's last group may be
// shorter), or a row.
enum class Fp8Sharing : uint8_t { kNone, kGroups, kRow };
// Columns under one scale, of a row of `num_k`. REQUIRES: not kNone.
constexpr int64_t fp8_columns(Fp8Sharing sharing, int64_t num_k) {
    return sharing == Fp8Sharing::kRow ? num_k : kFp8Group;
}

// What a row of activations is multiplied by before it is rounded, and, in exact.fp8, the static scale of its numbers.
struct RowFactors {
    float multiplier = 1.0f;
    float static_scale = 0.0f;  // 0: dynamic, a scale of each row or group
    friend bool operator==(const RowFactors&, const RowFactors&) = default;
};

// The e4m3 number nearest to x, ties to the even one; beyond the greatest, the greatest of x's sign. REQUIRES: no NaN.
VERBATIM_HOST_DEVICE constexpr float round_to_e4m3(float x) {
    constexpr uint32_t kSign = 0x8000'0000u;
    constexpr uint32_t kExponent = 0x7F80'0000u;
    const uint32_t bits = bits_from_float(x);
    const uint32_t magnitude = bits & ~kSign;  // magnitudes' bits order as the magnitudes do
    const uint32_t greatest = bits_from_float(kGreatestE4m3);
    const uint32_t limited = magnitude < greatest ? magnitude : greatest;
    // From 2^e on the unit is 2^(e − 3), and below 2^-6 it is 2^-9. It is binary32's unit at 2^(e + 20): the addition
    // rounds to it, and the subtraction is exact.
    const uint32_t least = bits_from_float(0x1p-6f);
    const uint32_t power = limited & kExponent;
    const float large = float_from_bits((power > least ? power : least) + (20u << 23));
    return float_from_bits(bits_from_float((float_from_bits(limited) + large) - large) | (bits & kSign));
}

}  // namespace verbatim::reference
