#include "reference/model/quantised_blocks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "engine/base/check.h"
#include "reference/model/block_bytes.h"
#include "reference/model/k_quantisers.h"
#include "reference/numerics/half.h"

namespace verbatim::reference {
namespace {

int32_t low_nibble(uint8_t byte) { return byte & 15; }
int32_t high_nibble(uint8_t byte) { return byte >> 4; }

// --- one weight a block

void dequantise_f32(const std::byte* block, float* out) { *out = value_at<float>(block, 0); }
void dequantise_f16(const std::byte* block, float* out) { *out = half_at(block, 0); }
void dequantise_bf16(const std::byte* block, float* out) {
    *out = std::bit_cast<float>(uint32_t{value_at<uint16_t>(block, 0)} << 16);
}

// --- 32 weights a block

constexpr int32_t kSmall = 32;

// d [2], q [16]: weight j is in the low nibble of byte j, weight j + 16 in the high one.
void dequantise_q4_0(const std::byte* block, float* out) {
    const float d = half_at(block, 0);
    for (int32_t j = 0; j < kSmall / 2; ++j) {
        const uint8_t q = byte_at(block, 2 + j);
        out[j] = d * static_cast<float>(low_nibble(q) - 8);
        out[j + kSmall / 2] = d * static_cast<float>(high_nibble(q) - 8);
    }
}

// d [2], m [2], q [16]
void dequantise_q4_1(const std::byte* block, float* out) {
    const float d = half_at(block, 0);
    const float m = half_at(block, 2);
    for (int32_t j = 0; j < kSmall / 2; ++j) {
        const uint8_t q = byte_at(block, 4 + j);
        out[j] = d * static_cast<float>(low_nibble(q)) + m;
        out[j + kSmall / 2] = d * static_cast<float>(high_nibble(q)) + m;
    }
}

// Weight j of the five bits in q [16] and h [4]: bit j of h is the fifth.
int32_t five_bits(const std::byte* q, uint32_t h, int32_t j) {
    const uint8_t byte = byte_at(q, j % (kSmall / 2));
    const int32_t low = j < kSmall / 2 ? low_nibble(byte) : high_nibble(byte);
    return low | static_cast<int32_t>(h >> j & 1) << 4;
}

// d [2], h [4], q [16]
void dequantise_q5_0(const std::byte* block, float* out) {
    const float d = half_at(block, 0);
    const auto h = value_at<uint32_t>(block, 2);
    for (int32_t j = 0; j < kSmall; ++j) out[j] = d * static_cast<float>(five_bits(block + 6, h, j) - 16);
}

// d [2], m [2], h [4], q [16]
void dequantise_q5_1(const std::byte* block, float* out) {
    const float d = half_at(block, 0);
    const float m = half_at(block, 2);
    const auto h = value_at<uint32_t>(block, 4);
    for (int32_t j = 0; j < kSmall; ++j) out[j] = d * static_cast<float>(five_bits(block + 8, h, j)) + m;
}

// d [2], q [32] of int8
void dequantise_q8_0(const std::byte* block, float* out) {
    const float d = half_at(block, 0);
    for (int32_t j = 0; j < kSmall; ++j) out[j] = static_cast<float>(signed_at(block, 2 + j)) * d;
}

constexpr std::array<float, 16> kNonLinear = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// d [2], q [16]
void dequantise_iq4_nl(const std::byte* block, float* out) {
    const float d = half_at(block, 0);
    for (int32_t j = 0; j < kSmall / 2; ++j) {
        const uint8_t q = byte_at(block, 2 + j);
        out[j] = d * kNonLinear[low_nibble(q)];
        out[j + kSmall / 2] = d * kNonLinear[high_nibble(q)];
    }
}

// Twice the values of e2m1.
constexpr std::array<float, 16> kMxfp4 = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// 2^(e - 128), half the value of e8m0; e below 2 is subnormal.
float half_power(uint8_t e) {
    return std::bit_cast<float>(e < 2 ? 0x0020'0000u << e : static_cast<uint32_t>(e - 1) << 23);
}

// e [1], q [16]
void dequantise_mxfp4(const std::byte* block, float* out) {
    const float d = half_power(byte_at(block, 0));
    for (int32_t j = 0; j < kSmall / 2; ++j) {
        const uint8_t q = byte_at(block, 1 + j);
        out[j] = d * kMxfp4[low_nibble(q)];
        out[j + kSmall / 2] = d * kMxfp4[high_nibble(q)];
    }
}

// --- 256 weights a block

constexpr int32_t kLarge = 256;

// scales [16]: scale in the low nibble, min in the high one; q [64]; d [2]; dmin [2].
// Weight 128·n + 32·j + l is in bits 2·j of byte 32·n + l, and in run 8·n + 2·j + l / 16 of 16 weights.
void dequantise_q2_k(const std::byte* block, float* out) {
    const float d = half_at(block, 80);
    const float dmin = half_at(block, 82);
    for (int32_t i = 0; i < kLarge; ++i) {
        const uint8_t scale = byte_at(block, i / 16);
        const int32_t q = byte_at(block, 16 + i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2) & 3;
        out[i] = d * static_cast<float>(low_nibble(scale)) * static_cast<float>(q) -
                 dmin * static_cast<float>(high_nibble(scale));
    }
}

// hmask [32], q [64], scales [12], d [2]: q as in Q2_K; bit i / 32 of hmask[i % 32] clear subtracts 4.
void dequantise_q3_k(const std::byte* block, float* out) {
    const std::byte* scales = block + 96;
    const float d = half_at(block, 108);
    for (int32_t i = 0; i < kLarge; ++i) {
        const int32_t run = i / 16;
        const uint8_t low = byte_at(scales, run % 8);
        const int32_t high = byte_at(scales, 8 + run % 4) >> (run / 4 * 2) & 3;
        const int32_t scale = ((run < 8 ? low_nibble(low) : high_nibble(low)) | high << 4) - 32;
        const int32_t two = byte_at(block, 32 + i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2) & 3;
        const int32_t third = byte_at(block, i % 32) >> (i / 32) & 1;
        out[i] = d * static_cast<float>(scale) * static_cast<float>(two - (third == 0 ? 4 : 0));
    }
}

// Of Q4_K and Q5_K: quant(j, l) is number l of run j of 32 weights.
template <typename Quant>
void dequantise_with_minima(const std::byte* block, const Quant& quant, float* out) {
    for (int32_t j = 0; j < kLarge / 32; ++j) {
        const ScaleAndMin run = scale_and_min(block, j);
        for (int32_t l = 0; l < 32; ++l) out[j * 32 + l] = run.scale * static_cast<float>(quant(j, l)) - run.min;
    }
}

// d [2], dmin [2], scales [12], q [128]: run j of 32 weights is in the low nibbles of bytes 32·(j / 2) ..., or, if j is
// odd, in the high ones.
void dequantise_q4_k(const std::byte* block, float* out) {
    const auto quant = [block](int32_t j, int32_t l) {
        return byte_at(block, 16 + j / 2 * 32 + l) >> (j % 2 * 4) & 15;
    };
    dequantise_with_minima(block, quant, out);
}

// d [2], dmin [2], scales [12], h [32], q [128]: as Q4_K; bit j of h[l] is the fifth.
void dequantise_q5_k(const std::byte* block, float* out) {
    const auto quant = [block](int32_t j, int32_t l) {
        const int32_t low = byte_at(block, 48 + j / 2 * 32 + l) >> (j % 2 * 4) & 15;
        return low | (byte_at(block, 16 + l) >> j & 1) << 4;
    };
    dequantise_with_minima(block, quant, out);
}

// low [128], high [64], scales [16] of int8, d [2]. Of weight 128·n + 32·j + l four bits are in byte 64·n + 32·(j % 2)
// + l of low (nibble j / 2), two in bits 2·j of byte 32·n + l of high. A run of 16 weights has one scale.
void dequantise_q6_k(const std::byte* block, float* out) {
    const float d = half_at(block, 208);
    for (int32_t run = 0; run < kLarge / 16; ++run) {
        const int32_t n = run / 8;
        const int32_t j = run % 8 / 2;
        const std::byte* low = block + n * 64 + j % 2 * 32 + run % 2 * 16;
        const std::byte* high = block + 128 + n * 32 + run % 2 * 16;
        const float scale = d * static_cast<float>(signed_at(block, 192 + run));
        for (int32_t l = 0; l < 16; ++l) {
            const int32_t q = (byte_at(low, l) >> (j / 2 * 4) & 15) | (byte_at(high, l) >> (j * 2) & 3) << 4;
            out[run * 16 + l] = scale * static_cast<float>(q - 32);
        }
    }
}

// d [2], scales_high [2], scales_low [4], q [128]: runs of 32 weights as in IQ4_NL, each with six bits of scale.
void dequantise_iq4_xs(const std::byte* block, float* out) {
    const float d = half_at(block, 0);
    const auto high = value_at<uint16_t>(block, 2);
    for (int32_t j = 0; j < kLarge / 32; ++j) {
        const int32_t low = byte_at(block, 4 + j / 2) >> (j % 2 * 4) & 15;
        const float scale = d * static_cast<float>((low | (high >> (2 * j) & 3) << 4) - 32);
        for (int32_t l = 0; l < 16; ++l) {
            const uint8_t q = byte_at(block, 8 + j * 16 + l);
            out[j * 32 + l] = scale * kNonLinear[low_nibble(q)];
            out[j * 32 + l + 16] = scale * kNonLinear[high_nibble(q)];
        }
    }
}

// --- ggml's reference quantisers (quantize_row_*_ref)

// Towards zero; NaN becomes `least`.
int32_t to_int(float value, int32_t least, int32_t greatest) {
    if (value >= static_cast<float>(greatest)) return greatest;
    return value > static_cast<float>(least) ? static_cast<int32_t>(value) : least;
}

// d = greatest magnitude / 127; q = round(x · (1 / d)), halves away from zero.
void quantise_q8_0(const float* x, std::byte* block) {
    float greatest = 0.0F;
    for (int32_t j = 0; j < kSmall; ++j) greatest = std::max(greatest, std::abs(x[j]));
    const float d = greatest / 127.0F;
    const float inverse = d != 0.0F ? 1.0F / d : 0.0F;
    put_half(block, d);
    for (int32_t j = 0; j < kSmall; ++j)
        block[2 + j] = static_cast<std::byte>(to_int(std::round(x[j] * inverse), -127, 127));
}

// d = (the first value of greatest magnitude) / -8; q = min(15, floor(x · (1 / d) + 8.5)).
void quantise_q4_0(const float* x, std::byte* block) {
    const float* greatest = std::max_element(x, x + kSmall, [](float a, float b) { return std::abs(a) < std::abs(b); });
    const float d = *greatest / -8.0F;
    const float inverse = d != 0.0F ? 1.0F / d : 0.0F;
    put_half(block, d);
    const auto nibble = [&](float value) { return static_cast<uint8_t>(to_int(value * inverse + 8.5F, 0, 15)); };
    for (int32_t j = 0; j < kSmall / 2; ++j)
        block[2 + j] = static_cast<std::byte>(nibble(x[j]) | nibble(x[j + kSmall / 2]) << 4);
}

// d = (the first value of greatest magnitude) / -16; q = min(31, floor(x · (1 / d) + 16.5)).
void quantise_q5_0(const float* x, std::byte* block) {
    const float* greatest = std::max_element(x, x + kSmall, [](float a, float b) { return std::abs(a) < std::abs(b); });
    const float d = *greatest / -16.0F;
    const float inverse = d != 0.0F ? 1.0F / d : 0.0F;
    put_half(block, d);
    uint32_t h = 0;
    std::fill_n(block + 6, kSmall / 2, std::byte{0});
    for (int32_t j = 0; j < kSmall; ++j) {
        const auto q = static_cast<uint32_t>(to_int(x[j] * inverse + 16.5F, 0, 31));
        h |= q >> 4 << j;
        block[6 + j % (kSmall / 2)] |= static_cast<std::byte>((q & 15) << (j / (kSmall / 2) * 4));
    }
    std::memcpy(block + 2, &h, sizeof(h));
}

constexpr std::array<BlockFormat, 16> kFormats = {{
    {"F32", 0, 1, 4, dequantise_f32},
    {"F16", 1, 1, 2, dequantise_f16},
    {"Q4_0", 2, kSmall, 18, dequantise_q4_0, quantise_q4_0},
    {"Q4_1", 3, kSmall, 20, dequantise_q4_1},
    {"Q5_0", 6, kSmall, 22, dequantise_q5_0, quantise_q5_0},
    {"Q5_1", 7, kSmall, 24, dequantise_q5_1},
    {"Q8_0", 8, kSmall, 34, dequantise_q8_0, quantise_q8_0},
    {"Q2_K", 10, kLarge, 84, dequantise_q2_k},
    {"Q3_K", 11, kLarge, 110, dequantise_q3_k},
    {"Q4_K", 12, kLarge, 144, dequantise_q4_k, quantise_q4_k},
    {"Q5_K", 13, kLarge, 176, dequantise_q5_k},
    {"Q6_K", 14, kLarge, 210, dequantise_q6_k, quantise_q6_k},
    {"IQ4_NL", 20, kSmall, 18, dequantise_iq4_nl},
    {"IQ4_XS", 23, kLarge, 136, dequantise_iq4_xs},
    {"BF16", 30, 1, 2, dequantise_bf16},
    {"MXFP4", 39, kSmall, 17, dequantise_mxfp4},
}};

}  // namespace

std::span<const BlockFormat> block_formats() { return kFormats; }

const BlockFormat* find_block_format(uint32_t ggml_type) {
    const auto* found = std::ranges::find(kFormats, ggml_type, &BlockFormat::ggml_type);
    return found == kFormats.end() ? nullptr : found;
}

const BlockFormat* find_block_format(std::string_view name) {
    const auto* found = std::ranges::find(kFormats, name, &BlockFormat::name);
    return found == kFormats.end() ? nullptr : found;
}

std::string block_format_names() {
    std::string names;
    for (const BlockFormat& format : kFormats) names += (names.empty() ? "" : ", ") + std::string(format.name);
    return names;
}

void dequantise(const BlockFormat& format, std::span<const std::byte> blocks, std::span<float> out) {
    const auto num_weights = static_cast<int64_t>(out.size());
    CHECK_EQ(num_weights % format.num_weights, 0);
    CHECK_EQ(static_cast<int64_t>(blocks.size()), format.row_bytes(num_weights));
    for (int64_t i = 0; i < num_weights / format.num_weights; ++i)
        format.dequantise(blocks.data() + i * format.num_bytes, out.data() + i * format.num_weights);
}

void quantise(const BlockFormat& format, std::span<const float> values, std::span<std::byte> blocks) {
    const auto num_weights = static_cast<int64_t>(values.size());
    CHECK(format.quantise != nullptr, "{}", format.name);
    CHECK_EQ(num_weights % format.num_weights, 0);
    CHECK_EQ(static_cast<int64_t>(blocks.size()), format.row_bytes(num_weights));
    for (int64_t i = 0; i < num_weights / format.num_weights; ++i)
        format.quantise(values.data() + i * format.num_weights, blocks.data() + i * format.num_bytes);
}

}  // namespace verbatim::reference
