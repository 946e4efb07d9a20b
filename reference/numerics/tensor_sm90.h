// reference/numerics/tensor_sm90.h: the dot product of the profile tensor.sm90: an integer model of Hopper's tensor
// cores with bf16 inputs and a binary32 accumulator (MMA-Sim, arXiv 2511.10909). tests/gpu compares it with a device;
// the comparison decides whether the model is right.
//
// One group, acc + Σ a[i] · b[i] over 16 products:
//   1  a product's significand is exact (two of 8 bits), its exponent the sum of its factors', where a subnormal has
//   -126; a zero factor drops its product, whatever the other factor is (docs/numerics.md: where that could show)
//   2  every term is aligned to the largest exponent of the 17 and cut off below 25 fraction bits, toward zero
//   3  the cut terms are added exactly, also those beyond binary32's range; the sum is cut to binary32, toward zero;
//      what is beyond its range is infinite
//   4  a NaN, an infinity times zero, or infinities of both signs: NaN; else an infinity: that infinity
//
// A dot product runs in chunks of 512; each chunk starts at +0 and takes groups of 16 in ascending order (a tail is
// padded with +0); the total starts at +0 and adds the chunks in order, in binary32.
#pragma once

#include <cstdint>

#include "reference/numerics/bf16.h"

namespace verbatim::reference {

inline constexpr int kTensorGroup = 16;
inline constexpr int64_t kTensorChunk = 512;
inline constexpr int kTensorFractionBits = 25;

// A finite term: (-1)^negative · significand · 2^(exponent - fraction bits of the significand).
struct TensorTerm {
    bool negative = false;
    int32_t exponent = 0;
    int64_t significand = 0;  // scaled to kTensorFractionBits fraction bits; 0: takes no part
};

VERBATIM_HOST_DEVICE inline TensorTerm tensor_product(uint16_t a, uint16_t b) {
    if ((a & 0x7FFF) == 0 || (b & 0x7FFF) == 0) return {};
    const int32_t a_field = (a >> 7) & 0xFF;
    const int32_t b_field = (b >> 7) & 0xFF;
    // Stored values are never subnormal (NUMERICS N2); subnormal arguments are computed correctly.
    const int64_t x = (a & 0x7F) | (a_field == 0 ? 0 : 0x80);
    const int64_t y = (b & 0x7F) | (b_field == 0 ? 0 : 0x80);
    const int32_t exponent = (a_field == 0 ? 1 : a_field) + (b_field == 0 ? 1 : b_field) - 254;
    return {((a ^ b) & 0x8000) != 0, exponent, (x * y) << (kTensorFractionBits - 14)};  // 14 fraction bits, below 4
}

VERBATIM_HOST_DEVICE inline TensorTerm tensor_accumulator(float acc) {
    const uint32_t bits = bits_from_float(acc);
    const auto exponent = static_cast<int32_t>((bits >> 23) & 0xFFU);
    const int64_t fraction = bits & 0x7FFFFFU;
    if ((bits & 0x7FFFFFFFU) == 0) return {};
    const int64_t significand = exponent == 0 ? fraction : fraction | 0x800000;  // 23 fraction bits
    return {(bits >> 31) != 0, (exponent == 0 ? 1 : exponent) - 127, significand << (kTensorFractionBits - 23)};
}

// |sum| · 2^(exponent - 25), toward zero.
VERBATIM_HOST_DEVICE inline float tensor_round(int64_t sum, int32_t exponent) {
    if (sum == 0) return 0.0F;
    const uint32_t sign = sum < 0 ? 0x80000000U : 0U;
    auto magnitude = static_cast<uint64_t>(sum < 0 ? -sum : sum);
    int32_t e = exponent - kTensorFractionBits + 23;  // of the last bit, when 24 are left
    while (magnitude >= (uint64_t{1} << 24)) {
        magnitude >>= 1;
        ++e;
    }
    while (magnitude < (uint64_t{1} << 23) && e > -126) {
        magnitude <<= 1;
        --e;
    }
    if (e < -126) magnitude = -126 - e < 64 ? magnitude >> (-126 - e) : 0;
    if (e > 127) return float_from_bits(sign | 0x7F800000U);
    const bool normal = magnitude >= (uint64_t{1} << 23);
    const uint32_t field = normal ? static_cast<uint32_t>((e < -126 ? -126 : e) + 127) : 0U;
    return float_from_bits(sign | field << 23 | static_cast<uint32_t>(magnitude & 0x7FFFFFU));
}

// Rule 4: values that are not finite decide the result. 0: everything is finite.
VERBATIM_HOST_DEVICE inline uint32_t tensor_special(const uint16_t* a, const uint16_t* b, float acc) {
    const auto kind = [](uint32_t bits) {
        return (bits & 0x7F800000U) != 0x7F800000U ? 0 : (bits & 0x7FFFFFU) ? 2 : 1;
    };
    bool positive = false;
    bool negative = false;
    const auto infinite = [&](uint32_t sign) { (sign != 0 ? negative : positive) = true; };
    const uint32_t acc_bits = bits_from_float(acc);
    if (kind(acc_bits) == 2) return kQuietNanBits;
    if (kind(acc_bits) == 1) infinite(acc_bits >> 31);
    for (int i = 0; i < kTensorGroup; ++i) {
        const uint32_t x = uint32_t{a[i]} << 16;
        const uint32_t y = uint32_t{b[i]} << 16;
        if (kind(x) == 0 && kind(y) == 0) continue;
        const bool zero = (x & 0x7FFFFFFFU) == 0 || (y & 0x7FFFFFFFU) == 0;
        if (kind(x) == 2 || kind(y) == 2 || zero) return kQuietNanBits;
        infinite((x ^ y) >> 31);
    }
    if (positive && negative) return kQuietNanBits;
    return positive ? 0x7F800000U : negative ? 0xFF800000U : 0U;
}

// Rules 2 and 3.
VERBATIM_HOST_DEVICE inline float tensor_total(const TensorTerm (&terms)[kTensorGroup + 1]) {
    int32_t largest = INT32_MIN;
    for (int i = 0; i <= kTensorGroup; ++i) {
        if (terms[i].significand != 0 && terms[i].exponent > largest) largest = terms[i].exponent;
    }
    int64_t sum = 0;
    for (const TensorTerm& term : terms) {
        if (term.significand == 0) continue;
        const int32_t shift = largest - term.exponent;
        const int64_t cut = shift < 63 ? term.significand >> shift : 0;
        sum += term.negative ? -cut : cut;
    }
    return tensor_round(sum, largest);
}

// acc + Σ a[i] · b[i], 16 bf16 pairs.
VERBATIM_HOST_DEVICE inline float tensor_group(const uint16_t* a, const uint16_t* b, float acc) {
    if (const uint32_t special = tensor_special(a, b, acc); special != 0) return float_from_bits(special);
    TensorTerm terms[kTensorGroup + 1];
    for (int i = 0; i < kTensorGroup; ++i) terms[i] = tensor_product(a[i], b[i]);
    terms[kTensorGroup] = tensor_accumulator(acc);
    return tensor_total(terms);
}

// The dot product of n bf16 pairs, in the order above.
VERBATIM_HOST_DEVICE inline float tensor_dot(const uint16_t* a, const uint16_t* b, int64_t n) {
    float total = 0.0F;
    for (int64_t first = 0; first < n; first += kTensorChunk) {
        const int64_t last = first + kTensorChunk < n ? first + kTensorChunk : n;
        float acc = 0.0F;
        for (int64_t i = first; i < last; i += kTensorGroup) {
            uint16_t x[kTensorGroup] = {};
            uint16_t y[kTensorGroup] = {};
            for (int k = 0; k < kTensorGroup && i + k < last; ++k) {
                x[k] = a[i + k];
                y[k] = b[i + k];
            }
            acc = tensor_group(x, y, acc);
        }
        total = total + acc;
    }
    return total;
}

}  // namespace verbatim::reference
