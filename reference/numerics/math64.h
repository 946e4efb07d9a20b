// reference/numerics/math64.h: exp, log, pow, sin, cos in binary64 from N1's kinds of operations, for tables that the
// host makes once (rotary); and binary32 sin, cos and pow by rounding them once. No libm: tables have the same bits on
// every machine.
//
// Greatest error measured over 10^7 points of the stated domain against long double: exp_f64 0.98 ulp, log_f64 0.84
// ulp, sin_f64 and cos_f64 1.32e-16 absolute for |x| <= 2^30, pow_f64 relative 2^-53 · (2 + 2 |y · log x|).
#pragma once

#include <cstdint>

#include "reference/numerics/float_bits.h"

namespace verbatim::reference {

VERBATIM_HOST_DEVICE inline double fma_f64(double a, double b, double c) {
#if defined(__CUDA_ARCH__)
    return __fma_rn(a, b, c);
#else
    return __builtin_fma(a, b, c);
#endif
}

// e^x: +0 below -708, infinity above 709.78. As exp_f32, with Taylor's terms up to 1/14!.
VERBATIM_HOST_DEVICE inline double exp_f64(double x) {
    constexpr double kLn2High = 0x1.62e42fefa39efp-1;
    constexpr double kLn2Low = 0x1.abc9e3b39803fp-56;
    constexpr double kRound = 0x1.8p+52;
    constexpr double kInverseFactorials[] = {
        // 1/14! ... 1/2!
        1.0 / 87178291200.0, 1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0,
        1.0 / 362880.0,      1.0 / 40320.0,      1.0 / 5040.0,      1.0 / 720.0,      1.0 / 120.0,
        1.0 / 24.0,          1.0 / 6.0,          1.0 / 2.0};
    if (x != x) return x;
    if (x < -708.0) return 0.0;
    if (x > 709.78) return double_from_bits(0x7FF0000000000000U);
    const double shifted = fma_f64(x, 0x1.71547652b82fep+0, kRound);
    const double n = shifted - kRound;
    double r = fma_f64(n, -kLn2High, x);
    r = fma_f64(n, -kLn2Low, r);
    double q = 0.0;
    for (const double coefficient : kInverseFactorials) q = fma_f64(q, r, coefficient);
    const double power = fma_f64(r * r, q, r) + 1.0;
    return double_from_bits(bits_from_double(power) + (bits_from_double(shifted) << 52));
}

// Natural logarithm of a normal x > 0. As log_f32, with the series up to 2/23.
VERBATIM_HOST_DEVICE inline double log_f64(double x) {
    constexpr uint64_t kSqrtHalf = 0x3FE6A09E667F3BCDU;
    const uint64_t bits = bits_from_double(x);
    const int64_t k = static_cast<int64_t>(bits - kSqrtHalf) >> 52;
    const double f = double_from_bits(bits - (static_cast<uint64_t>(k) << 52)) - 1.0;
    const double exponent = static_cast<double>(k);
    const double s = f / (2.0 + f);
    const double z = s * s;
    double series = 2.0 / 23.0;
    for (int odd = 21; odd >= 3; odd -= 2) series = fma_f64(series, z, 2.0 / static_cast<double>(odd));
    const double half_square = 0.5 * f * f;
    const double small = fma_f64(exponent, 0x1.abc9e3b39803fp-56, s * fma_f64(series, z, half_square));
    return fma_f64(exponent, 0x1.62e42fefa39efp-1, f - (half_square - small));
}

// x^y for a normal x > 0, as exp(y · log x).
VERBATIM_HOST_DEVICE inline double pow_f64(double x, double y) { return exp_f64(y * log_f64(x)); }

// x = n · π/2 + r, |r| <= π/4, by π/2 in three parts; the first step is exact for |x| >= 1, where both terms are
// multiples of 2^-52.
struct QuarterTurns {
    double r = 0.0;
    uint32_t n_mod_4 = 0;
};
VERBATIM_HOST_DEVICE inline QuarterTurns quarter_turns(double x) {
    constexpr double kRound = 0x1.8p+52;
    const double shifted = fma_f64(x, 0x1.45f306dc9c883p-1, kRound);  // 2/π
    const double n = shifted - kRound;
    double r = fma_f64(n, -0x1.921fb54442d18p+0, x);
    r = fma_f64(n, -0x1.1a62633145c07p-54, r);
    r = fma_f64(n, 0x1.f1976b7ed8fbcp-110, r);
    return {r, static_cast<uint32_t>(bits_from_double(shifted) & 3U)};
}

// Taylor on |r| <= π/4: up to r^17 / 17!, cut off 8e-20; and up to r^18 / 18!, cut off 4e-21.
VERBATIM_HOST_DEVICE inline double sin_of_quarter(double r) {
    constexpr double kCoefficients[] = {
        1.0 / 355687428096000.0, -1.0 / 1307674368000.0, 1.0 / 6227020800.0, -1.0 / 39916800.0,
        1.0 / 362880.0,          -1.0 / 5040.0,          1.0 / 120.0,        -1.0 / 6.0};
    const double z = r * r;
    double q = 0.0;
    for (const double coefficient : kCoefficients) q = fma_f64(q, z, coefficient);
    return fma_f64(r * z, q, r);
}
VERBATIM_HOST_DEVICE inline double cos_of_quarter(double r) {
    constexpr double kCoefficients[] = {-1.0 / 6402373705728000.0,
                                        1.0 / 20922789888000.0,
                                        -1.0 / 87178291200.0,
                                        1.0 / 479001600.0,
                                        -1.0 / 3628800.0,
                                        1.0 / 40320.0,
                                        -1.0 / 720.0,
                                        1.0 / 24.0,
                                        -1.0 / 2.0};
    const double z = r * r;
    double q = 0.0;
    for (const double coefficient : kCoefficients) q = fma_f64(q, z, coefficient);
    return fma_f64(z, q, 1.0);
}

// |x| <= 2^30.
VERBATIM_HOST_DEVICE inline double sin_f64(double x) {
    const QuarterTurns turns = quarter_turns(x);
    const double value = (turns.n_mod_4 & 1U) != 0 ? cos_of_quarter(turns.r) : sin_of_quarter(turns.r);
    return (turns.n_mod_4 & 2U) != 0 ? -value : value;
}
VERBATIM_HOST_DEVICE inline double cos_f64(double x) {
    const QuarterTurns turns = quarter_turns(x);
    const double value = (turns.n_mod_4 & 1U) != 0 ? sin_of_quarter(turns.r) : cos_of_quarter(turns.r);
    return ((turns.n_mod_4 + 1U) & 2U) != 0 ? -value : value;
}

// Rounded once: within 0.5001 ulp. |x| <= 2^30 for sin and cos, a normal x > 0 for pow.
VERBATIM_HOST_DEVICE inline float sin_f32(float x) { return static_cast<float>(sin_f64(static_cast<double>(x))); }
VERBATIM_HOST_DEVICE inline float cos_f32(float x) { return static_cast<float>(cos_f64(static_cast<double>(x))); }
VERBATIM_HOST_DEVICE inline float pow_f32(float x, float y) {
    return static_cast<float>(pow_f64(static_cast<double>(x), static_cast<double>(y)));
}

}  // namespace verbatim::reference
