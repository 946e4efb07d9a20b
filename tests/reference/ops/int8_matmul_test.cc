#include "reference/ops/int8_matmul.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "reference/ops/quantised.h"
#include "tests/reference/ops/op_values.h"
#include "tests/support/random_blocks.h"

namespace verbatim::reference {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct QuantisedRow {
    std::vector<int8_t> quants;
    std::vector<float> scales;
};

QuantisedRow quantised_row(const std::vector<float>& x, Int8Sharing sharing, float multiplier = 1.0F) {
    const auto count = static_cast<int64_t>(x.size());
    const auto num_scales = static_cast<size_t>(count / scale_columns(sharing));
    QuantisedRow row{std::vector<int8_t>(x.size()), std::vector<float>(num_scales)};
    quantise_row({x.data(), count, multiplier, sharing, row.quants.data(), row.scales.data()});
    return row;
}

constexpr Int8Sharing kOf32 = Int8Sharing::kBlocksOf32;
constexpr Int8Sharing kOf256 = Int8Sharing::kBlocksOf256;
constexpr Int8Sharing kRow = Int8Sharing::kRow;

TEST(QuantiseRow, RoundsToTheNearestMultipleOfTheScaleTiesToEven) {
    std::vector<float> x(32, 0.0F);
    x[0] = -127.0F;
    x[1] = 0.5F;
    x[2] = 1.5F;
    x[3] = -2.5F;
    x[4] = 3.49F;
    const QuantisedRow row = quantised_row(x, kOf32);
    EXPECT_EQ(row.scales[0], 1.0F);
    EXPECT_EQ(std::vector<int8_t>(row.quants.begin(), row.quants.begin() + 6),
              (std::vector<int8_t>{-127, 0, 2, -2, 3, 0}));
    EXPECT_EQ(quantised_row(x, kOf32, 2.0F).scales[0], 2.0F);
}

// A scale of 32 elements is fp16, and divides by what was there before that rounding; one of 256 is binary32.
TEST(QuantiseRow, ScalesOf32AreHalvesAndOf256AreNot) {
    std::vector<float> x(256, 1.0F);
    x[0] = 127.06F;  // e = 1.00047...: halves are 2^-10 apart
    EXPECT_EQ(quantised_row(x, kOf32).scales[0], 1.0F);
    EXPECT_EQ(quantised_row(x, kOf256).scales[0], 1.0F / (127.0F / 127.06F));
    EXPECT_EQ(quantised_row(x, kOf32).quants[0], 127);
}

TEST(QuantiseRow, BlocksWithoutAScaleAreZero) {
    for (const Int8Sharing sharing : {kOf32, kOf256, kRow}) {
        const std::vector<float> none(256, 0.0F);
        EXPECT_EQ(quantised_row(none, sharing).scales[0], 0.0F);
        const QuantisedRow tiny = quantised_row(std::vector<float>(256, 1e-38F), sharing);
        EXPECT_EQ(tiny.scales[0], 0.0F);
        EXPECT_EQ(tiny.quants[0], 0);
    }
}

TEST(QuantiseRow, ABlockWithNanOrInfinityIsNan) {
    for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
        for (const Int8Sharing sharing : {kOf32, kOf256}) {
            std::vector<float> x = draw_values(512, 1);
            x[300] = bad;
            const QuantisedRow row = quantised_row(x, sharing);
            const auto at = static_cast<size_t>(300 / scale_columns(sharing));
            EXPECT_TRUE(std::isnan(row.scales[at]));
            EXPECT_EQ(row.quants[300], 0);
            EXPECT_FALSE(std::isnan(row.scales[at - 1]));
        }
    }
    // 127 · 65520 and more: the scale overflows fp16.
    EXPECT_EQ(quantised_row(std::vector<float>(32, 9e6F), kOf32).scales[0], kInfinity);
}

TEST(QuantiseRow, ARowAsAWholeHasOneScale) {
    std::vector<float> x = draw_values(320, 2);
    x[300] = -254.0F;
    x[5] = 3.0F;
    const QuantisedRow row = quantised_row(x, kRow, 0.5F);
    EXPECT_EQ(row.scales, std::vector<float>(10, 1.0F));
    EXPECT_EQ(row.quants[300], -127);
    EXPECT_EQ(row.quants[5], 2);  // of 1.5, to even
    x[300] = 127.06F;
    EXPECT_EQ(quantised_row(x, kRow).scales[0], 127.06F / 127.0F);
    x[17] = kInfinity;
    const QuantisedRow infinite = quantised_row(x, kRow);
    for (const float scale : infinite.scales) EXPECT_TRUE(std::isnan(scale));
    EXPECT_EQ(infinite.quants, std::vector<int8_t>(320, 0));
}

// From the values of the weights and the row's quants, in double precision: rounding apart, the same.
double near_product(const MatrixView& weight, int64_t n, const QuantisedRow& row, Int8Sharing sharing) {
    const auto block = static_cast<size_t>(scale_columns(sharing));
    std::vector<float> values(static_cast<size_t>(weight.cols));
    weight.read_row(n, values);
    double total = 0;
    for (size_t k = 0; k < values.size(); ++k)
        total += double{values[k]} * row.quants[k] * double{row.scales[k / block]};
    return total;
}

TEST(Int8Matmul, IsTheProductOfWeightsAndQuantisedActivations) {
    constexpr int64_t kK = 512;
    constexpr int64_t kN = 5;
    for (const BlockFormat& format : tests::integer_formats()) {
        const Int8Sharing sharing = find_integer_format(format)->sharing;
        std::mt19937_64 random(3);
        const auto blocks = tests::random_blocks(format, kN, kK, random);
        const MatrixView weight{nullptr, kN, kK, &format, blocks.data()};
        const auto x = draw_values(kK, 4);
        const QuantisedRow row = quantised_row(x, sharing, 0.5F);
        std::vector<float> out(kN);
        linear({.x = {x.data(), 1, kK, kK},
                .weight = weight,
                .in_multiplier = 0.5F,
                .profile = Profile::kExactInt8,
                .out = dense_rows(out.data(), 1, kN)});
        for (int64_t n = 0; n < kN; ++n) {
            const double wanted = near_product(weight, n, row, sharing);
            std::vector<float> values(kK);
            weight.read_row(n, values);
            double magnitude = 0;
            for (size_t k = 0; k < values.size(); ++k) magnitude += std::abs(double{values[k]} * double{x[k]});
            EXPECT_NEAR(out[n], wanted, magnitude * 1e-6) << format.name << " " << n;
        }
    }
}

// Two chunks: (256 values in a chunk, then the rest) by the contract's formula, of Q8_0.
TEST(Int8Matmul, ScalesEnterInTheStatedOrder) {
    constexpr int64_t kK = 320;
    const BlockFormat& format = *find_block_format("Q8_0");
    std::mt19937_64 random(5);
    const auto blocks = tests::random_blocks(format, 1, kK, random);
    const auto x = draw_values(kK, 6);
    const QuantisedRow row = quantised_row(x, kOf32);
    float total = 0.0F;
    float acc = 0.0F;
    for (int64_t b = 0; b < kK / 32; ++b) {
        if (b == 8) {
            total += acc;
            acc = 0.0F;
        }
        IntegerBlock block;
        find_integer_format(format)->read(&blocks[static_cast<size_t>(b * format.num_bytes)], block);
        int32_t sum = 0;
        for (int64_t k = 0; k < 32; ++k) sum += block.quants[k] * row.quants[static_cast<size_t>(b * 32 + k)];
        acc = std::fma(block.scale * row.scales[static_cast<size_t>(b)], static_cast<float>(sum), acc);
    }
    total += acc;
    float out = 0.0F;
    const float bias = 0.25F;
    int8_matmul({.x = {x.data(), 1, kK, kK},
                 .weight = {nullptr, 1, kK, &format, blocks.data()},
                 .bias = &bias,
                 .out = dense_rows(&out, 1, 1)});
    EXPECT_EQ(out, total + bias);
}

TEST(Int8Matmul, TypesWithoutIntegersAreComputedAsInExact) {
    std::mt19937_64 random(8);
    const BlockFormat& format = *find_block_format("MXFP4");
    std::vector<std::byte> blocks(static_cast<size_t>(2 * format.row_bytes(64)));
    for (std::byte& byte : blocks) byte = static_cast<std::byte>(random() & 0x77);
    const auto x = draw_values(64, 9);
    std::vector<float> out(4);
    for (const Profile profile : {Profile::kExact, Profile::kExactInt8})
        linear({.x = {x.data(), 1, 64, 64},
                .weight = {nullptr, 2, 64, &format, blocks.data()},
                .profile = profile,
                .out = dense_rows(&out[profile == Profile::kExact ? 0 : 2], 1, 2)});
    EXPECT_EQ(out[0], out[2]);
    EXPECT_EQ(out[1], out[3]);
}

}  // namespace
}  // namespace verbatim::reference
