// reference/numerics/math.h: the functions of the exact profile in binary32, each a fixed sequence of N1 operations
// (add, mul, fma, div, sqrt, compare, select, integer and bit operations, round to nearest even). One text for host and
// device; no libm, no CUDA math.
//
// Every select is written so that a vector version computes both sides and blends. Greatest error in units of the last
// place of the exact result, over all binary32 inputs of the domain (of magnitudes below 2^-31 every 128th), against
// binary64 libm (docs/numerics.md):
//
//   exp_f32       1.06 ulp   [-87, 88.72]        softplus_f32  1.64 ulp   [-87, 20]; exact above
//   log_f32       0.86 ulp   all positive        sigmoid_f32   2.49 ulp   [-87, inf)
//   log1p_f32     0.87 ulp   above -1            silu_f32      2.41 ulp   [-87, inf)
//
// Everywhere: NaN in, NaN out; sign and payload of the NaN are unspecified (N8 ends such a request).
#pragma once

#include <cstdint>

#include "reference/numerics/float_bits.h"

namespace verbatim::reference {

VERBATIM_HOST_DEVICE inline float fma_f32(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
    return __fmaf_rn(a, b, c);
#else
    return __builtin_fmaf(a, b, c);
#endif
}

VERBATIM_HOST_DEVICE inline float sqrt_f32(float x) {
#if defined(__CUDA_ARCH__)
    return __fsqrt_rn(x);
#else
    return __builtin_sqrtf(x);
#endif
}

// a > b ? a : b, except that a NaN on either side wins.
VERBATIM_HOST_DEVICE inline float max_f32(float a, float b) {
    const float larger = a > b ? a : b;
    return a == a ? larger : a;  // a > NaN is false and gives b, the NaN
}

inline constexpr float kExpLowest = -87.0F;
inline constexpr float kExpHighest = 88.72F;

// e^x for x in [kExpLowest, kExpHighest].
//
//   n = round(x · log2 e); r = x - n · ln 2 in two steps, of which the first is exact: both terms are multiples of
//   2^-24 and |r| < 0.35
//   e^r = 1 + (r + r² · q(r)), q = Taylor's 1/2! ... 1/7!; what is cut off is below 0.35^8 / 8! = 5.6e-9 = 0.1 ulp
//   times 2^n by adding n to the exponent field
VERBATIM_HOST_DEVICE inline float exp_inside(float x) {
    constexpr float kLog2E = 0x1.715476p+0F;
    constexpr float kLn2High = 0x1.62e430p-1F;   // ln 2 rounded to binary32
    constexpr float kLn2Low = -0x1.05c610p-29F;  // the rest
    constexpr float kRound = 0x1.8p+23F;         // adding it rounds to an integer in the low bits

    const float shifted = fma_f32(x, kLog2E, kRound);
    const float n = shifted - kRound;
    float r = fma_f32(n, -kLn2High, x);
    r = fma_f32(n, -kLn2Low, r);

    float q = 1.0F / 5040.0F;
    q = fma_f32(q, r, 1.0F / 720.0F);
    q = fma_f32(q, r, 1.0F / 120.0F);
    q = fma_f32(q, r, 1.0F / 24.0F);
    q = fma_f32(q, r, 1.0F / 6.0F);
    q = fma_f32(q, r, 0.5F);
    const float power = fma_f32(r * r, q, r) + 1.0F;
    // The low bits of `shifted` are n (two's complement); the shift drops the bits above them.
    return float_from_bits(bits_from_float(power) + (bits_from_float(shifted) << 23));
}

// e^x. Exactly 1 at 0; +0 below -87, infinity above 88.72, so that no result is subnormal.
VERBATIM_HOST_DEVICE inline float exp_f32(float x) {
    const float power = exp_inside(x >= kExpLowest && x <= kExpHighest ? x : 0.0F);
    float result = x < kExpLowest ? 0.0F : power;
    result = x > kExpHighest ? float_from_bits(0x7F800000U) : result;
    return x == x ? result : x;
}
// exp_f32 for x <= 0 or NaN, in fewer operations.
VERBATIM_HOST_DEVICE inline float exp_below_one(float x) {
    const bool is_inside = x >= kExpLowest;
    const float outside = x < kExpLowest ? 0.0F : x;
    const float power = exp_inside(is_inside ? x : 0.0F);
    return is_inside ? power : outside;
}

// log(x) + low for finite x > 0 and a `low` that is small relative to the last place of x; shared by log and log1p.
//
//   x = 2^k · (1 + f), 1 + f in [sqrt(1/2), sqrt(2)), by integer operations; subnormals are scaled by 2^23 first
//   s = f / (2 + f), z = s²: log(1 + f) = 2 atanh(s) = f - (f²/2 - s · (f²/2 + R)),
//   R = z · (2/3 + z · (2/5 + z · (2/7 + z · 2/9))); what is cut off is below 2/11 · 0.1716^11 = 7e-10, 0.02 ulp
//   where log(1 + f) is 0.34
VERBATIM_HOST_DEVICE inline float log_plus_f32(float x, float low) {
    constexpr float kLn2High = 0x1.62e430p-1F;
    constexpr float kLn2Low = -0x1.05c610p-29F;
    constexpr uint32_t kSqrtHalf = 0x3F3504F3U;  // the bits of sqrt(1/2)

    const bool subnormal = x < 0x1p-126F;
    const uint32_t bits = bits_from_float(x * (subnormal ? 0x1p+23F : 1.0F));
    const int32_t k = static_cast<int32_t>(bits - kSqrtHalf) >> 23;
    const float f = float_from_bits(bits - (static_cast<uint32_t>(k) << 23)) - 1.0F;
    const float exponent = static_cast<float>(k - (subnormal ? 23 : 0));

    const float s = f / (2.0F + f);
    const float z = s * s;
    float series = 2.0F / 9.0F;
    series = fma_f32(series, z, 2.0F / 7.0F);
    series = fma_f32(series, z, 2.0F / 5.0F);
    series = fma_f32(series, z, 2.0F / 3.0F);
    const float half_square = 0.5F * f * f;
    const float atanh_part = s * fma_f32(series, z, half_square);
    const float small = fma_f32(exponent, kLn2Low, atanh_part + low);
    return fma_f32(exponent, kLn2High, f - (half_square - small));
}

// Natural logarithm; -infinity at ±0, NaN below.
VERBATIM_HOST_DEVICE inline float log_f32(float x) {
    const float infinity = float_from_bits(0x7F800000U);
    const bool inside = x > 0.0F && x < infinity;
    float result = log_plus_f32(inside ? x : 1.0F, 0.0F);
    result = x == 0.0F ? -infinity : result;
    result = x < 0.0F ? float_from_bits(kQuietNanBits) : result;
    result = x == infinity ? infinity : result;
    return x == x ? result : x;
}

// log(1 + x). u = 1 + x rounded, and what the rounding lost, (x - (u - 1)) / u, goes into the logarithm's small part
// (after Kahan). -infinity at -1, NaN below; log1p(-0) is +0.
VERBATIM_HOST_DEVICE inline float log1p_f32(float x) {
    const float infinity = float_from_bits(0x7F800000U);
    const bool inside = x > -1.0F && x < infinity;
    const float safe = inside ? x : 0.0F;
    const float u = 1.0F + safe;
    float result = log_plus_f32(u, (safe - (u - 1.0F)) / u);
    result = x == -1.0F ? -infinity : result;
    result = x < -1.0F ? float_from_bits(kQuietNanBits) : result;
    result = x == infinity ? infinity : result;
    return x == x ? result : x;
}

// log(1 + e^x); x itself above 20.
VERBATIM_HOST_DEVICE inline float softplus_f32(float x) { return x > 20.0F ? x : log1p_f32(exp_f32(x)); }

// 1 ÷ (1 + e^-x)
VERBATIM_HOST_DEVICE inline float sigmoid_f32(float x) { return 1.0F / (1.0F + exp_f32(-x)); }

// x ÷ (1 + e^-x)
VERBATIM_HOST_DEVICE inline float silu_f32(float x) { return x / (1.0F + exp_f32(-x)); }

}  // namespace verbatim::reference
