// kernels/sandbox/small_floats.h: owns the numbers of two bytes and of one, in C99 and C++: bf16, binary16, and the two
// 8-bit formats of OCP. All are read exactly and rounded to nearest even.
//
//   F1  bf16 keeps subnormals and -0, as PyTorch and CUDA round it (the engine's rounding is of
//       reference/numerics/bf16.h, which flushes below 2^-56)
//   F2  e4m3 has no infinity: what is beyond 448 becomes NaN (0x7F); e5m2 has infinities
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__)
#define VERBATIM_SMALL_FLOAT static __host__ __device__ inline
#else
#define VERBATIM_SMALL_FLOAT static inline
#endif

VERBATIM_SMALL_FLOAT float verbatim_bits_to_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
VERBATIM_SMALL_FLOAT uint32_t verbatim_float_to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

VERBATIM_SMALL_FLOAT float verbatim_bf16_to_float(uint16_t bits) {
    return verbatim_bits_to_float((uint32_t)bits << 16);
}
VERBATIM_SMALL_FLOAT uint16_t verbatim_float_to_bf16(float value) {
    const uint32_t bits = verbatim_float_to_bits(value);
    if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return 0x7FC0U;
    return (uint16_t)((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

// A format of 1 sign, `exponent_bits` and `mantissa_bits`, with binary32's rules but for e4m3's NaN.
VERBATIM_SMALL_FLOAT float verbatim_small_to_float(uint32_t bits, int exponent_bits, int mantissa_bits, int is_e4m3) {
    const uint32_t most = (1U << exponent_bits) - 1U;
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const uint32_t mantissa = bits & ((1U << mantissa_bits) - 1U);
    const uint32_t exponent = (bits >> mantissa_bits) & most;
    const float sign = (bits >> (exponent_bits + mantissa_bits)) & 1U ? -1.0F : 1.0F;
    if (is_e4m3 && (bits & 0x7FU) == 0x7FU) return verbatim_bits_to_float(0x7FC00000U);
    if (!is_e4m3 && exponent == most) {
        return mantissa != 0 ? verbatim_bits_to_float(0x7FC00000U) : sign * verbatim_bits_to_float(0x7F800000U);
    }
    if (exponent == 0) return sign * ldexpf((float)mantissa, 1 - bias - mantissa_bits);
    return sign * ldexpf((float)(mantissa + (1U << mantissa_bits)), (int)exponent - bias - mantissa_bits);
}
VERBATIM_SMALL_FLOAT uint32_t verbatim_float_to_small(float value, int exponent_bits, int mantissa_bits, int is_e4m3) {
    const uint32_t most = (1U << exponent_bits) - 1U;
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const uint32_t sign = (verbatim_float_to_bits(value) >> 31) << (exponent_bits + mantissa_bits);
    const uint32_t infinity = most << mantissa_bits;
    const uint32_t nan = is_e4m3 ? 0x7FU : infinity | (1U << (mantissa_bits - 1));
    const float magnitude = fabsf(value);
    int exponent;
    uint32_t rounded;
    if (isnan(value)) return sign | nan;
    if (isinf(value)) return sign | (is_e4m3 ? nan : infinity);
    if (magnitude == 0.0F) return sign;
    (void)frexpf(magnitude, &exponent);
    exponent = exponent - 1 < 1 - bias ? 1 - bias : exponent - 1;
    // To nearest even, in units of the last place; a carry runs into the exponent.
    rounded = (uint32_t)rintf(ldexpf(magnitude, mantissa_bits - exponent));
    rounded += (uint32_t)(exponent + bias - 1) << mantissa_bits;
    if (is_e4m3) return sign | (rounded > 0x7EU ? nan : rounded);
    return sign | (rounded > infinity ? infinity : rounded);
}

VERBATIM_SMALL_FLOAT float verbatim_f16_to_float(uint16_t bits) { return verbatim_small_to_float(bits, 5, 10, 0); }
VERBATIM_SMALL_FLOAT uint16_t verbatim_float_to_f16(float value) {
    return (uint16_t)verbatim_float_to_small(value, 5, 10, 0);
}
VERBATIM_SMALL_FLOAT float verbatim_e4m3_to_float(uint8_t bits) { return verbatim_small_to_float(bits, 4, 3, 1); }
VERBATIM_SMALL_FLOAT uint8_t verbatim_float_to_e4m3(float value) {
    return (uint8_t)verbatim_float_to_small(value, 4, 3, 1);
}
VERBATIM_SMALL_FLOAT float verbatim_e5m2_to_float(uint8_t bits) { return verbatim_small_to_float(bits, 5, 2, 0); }
VERBATIM_SMALL_FLOAT uint8_t verbatim_float_to_e5m2(float value) {
    return (uint8_t)verbatim_float_to_small(value, 5, 2, 0);
}
