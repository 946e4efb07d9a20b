#include "reference/model/integer_blocks.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "reference/model/block_bytes.h"

namespace verbatim::reference {
namespace {

// The layouts are explained in reference/model/quantised_blocks.cc.

constexpr int32_t kWeightsOf32 = 32;
constexpr int32_t kWeightsOf256 = 256;

int32_t nibble(const std::byte* bytes, int32_t i, bool high) { return byte_at(bytes, i) >> (high ? 4 : 0) & 15; }

int8_t narrow(int32_t value) { return static_cast<int8_t>(value); }

// Of a block of 32 with two nibbles a byte.
int32_t small_nibble(const std::byte* bytes, int32_t k) { return nibble(bytes, k % 16, k >= 16); }

void one_scale(float scale, float offset, IntegerBlock& out) {
    out.scale = scale;
    out.offset = offset;
    out.scales[0] = 1;
    out.minima[0] = 1;
}

void read_q8_0(const std::byte* block, IntegerBlock& out) {
    one_scale(half_at(block, 0), 0.0F, out);
    std::memcpy(out.quants, block + 2, kWeightsOf32);
}

void read_q4_0(const std::byte* block, IntegerBlock& out) {
    one_scale(half_at(block, 0), 0.0F, out);
    for (int32_t k = 0; k < kWeightsOf32; ++k) out.quants[k] = narrow(small_nibble(block + 2, k) - 8);
}

void read_q4_1(const std::byte* block, IntegerBlock& out) {
    one_scale(half_at(block, 0), half_at(block, 2), out);
    for (int32_t k = 0; k < kWeightsOf32; ++k) out.quants[k] = narrow(small_nibble(block + 4, k));
}

int32_t five_bit_quant(const std::byte* nibbles, uint32_t fifth, int32_t k) {
    return small_nibble(nibbles, k) | static_cast<int32_t>(fifth >> k & 1) << 4;
}

void read_q5_0(const std::byte* block, IntegerBlock& out) {
    one_scale(half_at(block, 0), 0.0F, out);
    const auto fifth = value_at<uint32_t>(block, 2);
    for (int32_t k = 0; k < kWeightsOf32; ++k) out.quants[k] = narrow(five_bit_quant(block + 6, fifth, k) - 16);
}

void read_q5_1(const std::byte* block, IntegerBlock& out) {
    one_scale(half_at(block, 0), half_at(block, 2), out);
    const auto fifth = value_at<uint32_t>(block, 4);
    for (int32_t k = 0; k < kWeightsOf32; ++k) out.quants[k] = narrow(five_bit_quant(block + 8, fifth, k));
}

constexpr std::array<int8_t, 16> kNonLinearQuants = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                     1,    13,   25,  38,  53,  69,  89,  113};

void read_iq4_nl(const std::byte* block, IntegerBlock& out) {
    one_scale(half_at(block, 0), 0.0F, out);
    for (int32_t k = 0; k < kWeightsOf32; ++k)
        out.quants[k] = kNonLinearQuants[static_cast<size_t>(small_nibble(block + 2, k))];
}

void read_q2_k(const std::byte* block, IntegerBlock& out) {
    out.scale = half_at(block, 80);
    out.offset = -half_at(block, 82);
    for (int32_t run = 0; run < 16; ++run) {
        out.scales[run] = narrow(nibble(block, run, false));
        out.minima[run] = static_cast<uint8_t>(nibble(block, run, true));
    }
    for (int32_t k = 0; k < kWeightsOf256; ++k)
        out.quants[k] = narrow(byte_at(block, 16 + k / 128 * 32 + k % 32) >> (k % 128 / 32 * 2) & 3);
}

void read_q3_k(const std::byte* block, IntegerBlock& out) {
    const std::byte* scales = block + 96;
    out.scale = half_at(block, 108);
    for (int32_t run = 0; run < 16; ++run) {
        const int32_t high = byte_at(scales, 8 + run % 4) >> (run / 4 * 2) & 3;
        out.scales[run] = narrow((nibble(scales, run % 8, run >= 8) | high << 4) - 32);
    }
    for (int32_t k = 0; k < kWeightsOf256; ++k) {
        const int32_t two = byte_at(block, 32 + k / 128 * 32 + k % 32) >> (k % 128 / 32 * 2) & 3;
        const int32_t third = byte_at(block, k % 32) >> (k / 32) & 1;
        out.quants[k] = narrow(two - (third == 0 ? 4 : 0));
    }
}

// Scales and minima of Q4_K and Q5_K, six bits each.
void read_six_bits(const std::byte* block, IntegerBlock& out) {
    out.scale = half_at(block, 0);
    out.offset = -half_at(block, 2);
    const std::byte* scales = block + 4;
    for (int32_t j = 0; j < 8; ++j) {
        const uint8_t low = byte_at(scales, j < 4 ? j : j + 4);
        out.scales[j] = narrow(j < 4 ? low & 63 : (low & 15) | byte_at(scales, j - 4) >> 6 << 4);
        out.minima[j] =
            static_cast<uint8_t>(j < 4 ? byte_at(scales, j + 4) & 63 : low >> 4 | byte_at(scales, j) >> 6 << 4);
    }
}

void read_q4_k(const std::byte* block, IntegerBlock& out) {
    read_six_bits(block, out);
    for (int32_t k = 0; k < kWeightsOf256; ++k)
        out.quants[k] = narrow(nibble(block + 16 + k / 64 * 32, k % 32, k / 32 % 2 == 1));
}

void read_q5_k(const std::byte* block, IntegerBlock& out) {
    read_six_bits(block, out);
    for (int32_t k = 0; k < kWeightsOf256; ++k) {
        const int32_t fifth = byte_at(block, 16 + k % 32) >> (k / 32) & 1;
        out.quants[k] = narrow(nibble(block + 48 + k / 64 * 32, k % 32, k / 32 % 2 == 1) | fifth << 4);
    }
}

void read_q6_k(const std::byte* block, IntegerBlock& out) {
    out.scale = half_at(block, 208);
    std::memcpy(out.scales, block + 192, 16);
    for (int32_t k = 0; k < kWeightsOf256; ++k) {
        const int32_t n = k / 128;
        const int32_t j = k % 128 / 32;
        const int32_t low = nibble(block + n * 64 + j % 2 * 32, k % 32, j / 2 == 1);
        const int32_t high = byte_at(block, 128 + n * 32 + k % 32) >> (j * 2) & 3;
        out.quants[k] = narrow((low | high << 4) - 32);
    }
}

void read_iq4_xs(const std::byte* block, IntegerBlock& out) {
    out.scale = half_at(block, 0);
    const auto high = value_at<uint16_t>(block, 2);
    for (int32_t j = 0; j < 8; ++j) {
        out.scales[j] = narrow((nibble(block + 4, j / 2, j % 2 == 1) | (high >> (2 * j) & 3) << 4) - 32);
        for (int32_t k = 0; k < 32; ++k)
            out.quants[j * 32 + k] = kNonLinearQuants[static_cast<size_t>(small_nibble(block + 8 + j * 16, k))];
    }
}

// Those of reference/model/scaled_blocks.h: a binary32 scale, then the zero point if there is one, then the quants.
constexpr int32_t kScaleBytes = 4;

void read_scaled_int8(const std::byte* block, IntegerBlock& out) {
    one_scale(value_at<float>(block, 0), 0.0F, out);
    std::memcpy(out.quants, block + kScaleBytes, kWeightsOf32);
}

void read_scaled_nibbles(float scale, int32_t zero, const std::byte* quants, IntegerBlock& out) {
    one_scale(scale, 0.0F, out);
    for (int32_t k = 0; k < kWeightsOf32; ++k) out.quants[k] = narrow(nibble(quants, k / 2, k % 2 == 1) - zero);
}

void read_scaled_int4(const std::byte* block, IntegerBlock& out) {
    read_scaled_nibbles(value_at<float>(block, 0), 8, block + kScaleBytes, out);
}

void read_scaled_int4_zero(const std::byte* block, IntegerBlock& out) {
    read_scaled_nibbles(value_at<float>(block, 0), byte_at(block, kScaleBytes), block + kScaleBytes + 1, out);
}

constexpr Int8Sharing kOf256 = Int8Sharing::kBlocksOf256;
constexpr Int8Sharing kRow = Int8Sharing::kRow;
constexpr std::array<IntegerFormat, 15> kIntegerFormats = {{
    {"Q4_0", 32, 32, false, false, 8, 16, read_q4_0},
    {"Q4_1", 32, 32, false, true, 0, 16, read_q4_1},
    {"Q5_0", 32, 32, false, false, 16, 32, read_q5_0},
    {"Q5_1", 32, 32, false, true, 0, 32, read_q5_1},
    {"Q8_0", 32, 32, false, false, 128, 256, read_q8_0},
    {"Q2_K", 256, 16, true, true, 0, 4, read_q2_k, kOf256},
    {"Q3_K", 256, 16, true, false, 4, 8, read_q3_k, kOf256},
    {"Q4_K", 256, 32, true, true, 0, 16, read_q4_k, kOf256},
    {"Q5_K", 256, 32, true, true, 0, 32, read_q5_k, kOf256},
    {"Q6_K", 256, 16, true, false, 32, 64, read_q6_k, kOf256},
    {"IQ4_NL", 32, 32, false, false, 128, 256, read_iq4_nl},
    {"IQ4_XS", 256, 32, true, false, 128, 256, read_iq4_xs, kOf256},
    {"INT8", 32, 32, false, false, 128, 256, read_scaled_int8, kRow, true},
    {"INT4", 32, 32, false, false, 8, 16, read_scaled_int4, kRow, true},
    {"INT4_ZERO", 32, 32, false, false, 16, 32, read_scaled_int4_zero, kRow, true},
}};

}  // namespace

const IntegerFormat* find_integer_format(const BlockFormat& format) {
    const auto* found = std::ranges::find(kIntegerFormats, format.name, &IntegerFormat::name);
    return found == kIntegerFormats.end() ? nullptr : found;
}

}  // namespace verbatim::reference
