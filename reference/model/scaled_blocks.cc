#include "reference/model/scaled_blocks.h"

#include <array>
#include <cmath>
#include <limits>

#include "reference/model/block_bytes.h"

namespace verbatim::reference {
namespace {

constexpr int64_t kScaleBytes = sizeof(float);

void dequantise_int8(const std::byte* block, float* out) {
    const auto scale = value_at<float>(block, 0);
    for (int32_t i = 0; i < kScaledWeights; ++i) out[i] = scale * static_cast<float>(signed_at(block, kScaleBytes + i));
}

void dequantise_nibbles(float scale, int32_t zero, const std::byte* quants, float* out) {
    for (int32_t j = 0; j < kScaledWeights / 2; ++j) {
        const uint8_t pair = byte_at(quants, j);
        out[2 * j] = scale * static_cast<float>((pair & 15) - zero);
        out[2 * j + 1] = scale * static_cast<float>((pair >> 4) - zero);
    }
}

void dequantise_int4(const std::byte* block, float* out) {
    dequantise_nibbles(value_at<float>(block, 0), 8, block + kScaleBytes, out);
}

void dequantise_int4_zero(const std::byte* block, float* out) {
    dequantise_nibbles(value_at<float>(block, 0), byte_at(block, kScaleBytes), block + kScaleBytes + 1, out);
}

// Sign, four bits of exponent with bias 7, three of mantissa.
float decode_e4m3(uint32_t bits) {
    const uint32_t exponent = bits >> 3 & 15;
    const uint32_t mantissa = bits & 7;
    if ((bits & 127) == 127) return std::numeric_limits<float>::quiet_NaN();
    const float magnitude = exponent == 0
                                ? std::ldexp(static_cast<float>(mantissa), -9)
                                : std::ldexp(static_cast<float>(8 + mantissa), static_cast<int>(exponent) - 10);
    return (bits & 128) != 0 ? -magnitude : magnitude;
}

std::array<float, 256> all_e4m3() {
    std::array<float, 256> values{};
    for (uint32_t bits = 0; bits < values.size(); ++bits) values[bits] = decode_e4m3(bits);
    return values;
}
const std::array<float, 256> kE4m3 = all_e4m3();

void dequantise_fp8(const std::byte* block, float* out) {
    const auto scale = value_at<float>(block, 0);
    for (int32_t i = 0; i < kScaledWeights; ++i) out[i] = scale * kE4m3[byte_at(block, kScaleBytes + i)];
}

constexpr std::array<float, 16> kE2m1 = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};

void dequantise_fp4(const std::byte* block, float* out) {
    for (int32_t j = 0; j < kScaledWeights / 2; ++j) {
        const auto scale = value_at<float>(block, j < kScaledWeights / 4 ? 0 : kScaleBytes);
        const uint8_t pair = byte_at(block, 2 * kScaleBytes + j);
        out[2 * j] = scale * kE2m1[pair & 15];
        out[2 * j + 1] = scale * kE2m1[pair >> 4];
    }
}

void dequantise_ordered(const std::byte* block, float* out) {
    for (int32_t i = 0; i < kScaledWeights; ++i) out[i] = value_at<float>(block, i * int64_t{sizeof(float)});
}

}  // namespace

const BlockFormat kScaledInt8 = {"INT8", kNoGgmlType, kScaledWeights, kScaleBytes + 32, dequantise_int8};
const BlockFormat kScaledInt4 = {"INT4", kNoGgmlType, kScaledWeights, kScaleBytes + 16, dequantise_int4};
const BlockFormat kScaledInt4Zero = {"INT4_ZERO", kNoGgmlType, kScaledWeights, kScaleBytes + 17, dequantise_int4_zero};
const BlockFormat kScaledFp8 = {"FP8_E4M3", kNoGgmlType, kScaledWeights, kScaleBytes + 32, dequantise_fp8};

const BlockFormat kScaledFp4 = {"FP4_E2M1", kNoGgmlType, kScaledWeights, 2 * kScaleBytes + 16, dequantise_fp4};
const BlockFormat kOrderedIntegers = {"INT_ORDER", kNoGgmlType, kScaledWeights, kScaledWeights* int32_t{sizeof(float)},
                                      dequantise_ordered};

float e4m3_value(uint8_t bits) { return kE4m3[bits]; }

}  // namespace verbatim::reference
