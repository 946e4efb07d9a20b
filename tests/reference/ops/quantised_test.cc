#include "reference/ops/quantised.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "reference/numerics/bf16.h"
#include "reference/ops/embedding.h"
#include "reference/ops/matmul.h"

namespace verbatim::reference {
namespace {

std::vector<float> random_floats(int64_t count, float deviation, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal(0.0F, deviation);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = normal(random);
    return values;
}

// [rows, columns] in Q8_0.
std::vector<std::byte> quantised(std::span<const float> values) {
    const BlockFormat& format = *find_block_format("Q8_0");
    std::vector<std::byte> blocks(static_cast<size_t>(format.row_bytes(static_cast<int64_t>(values.size()))));
    quantise(format, values, blocks);
    return blocks;
}

// The formula of the contract, one output, by libm's fma.
float by_definition(const float* x, float multiplier, const float* w, int64_t num_k) {
    float total = 0.0F;
    for (int64_t begin = 0; begin < num_k; begin += 256) {
        const int64_t end = std::min<int64_t>(begin + 256, num_k);
        float acc = 0.0F;
        for (int64_t k = begin; k < end; k += 2) {
            acc = std::fma(bf16_value(x[k + 1] * multiplier), w[k + 1], acc);
            acc = std::fma(bf16_value(x[k] * multiplier), w[k], acc);
        }
        total += acc;
    }
    return total;
}

TEST(QuantisedMatmul, IsTheFormulaOverTheBlocksValues) {
    constexpr int64_t kRows = 3;
    constexpr int64_t kOutputs = 5;
    for (const int64_t num_k : {32, 256, 288, 544}) {
        const auto x = random_floats(kRows * num_k, 1.0F, 1);
        const auto bias = random_floats(kOutputs, 1.0F, 2);
        const auto blocks = quantised(random_floats(kOutputs * num_k, 0.05F, 3));
        std::vector<float> w(static_cast<size_t>(kOutputs * num_k));
        dequantise(*find_block_format("Q8_0"), blocks, w);
        std::vector<float> out(kRows * kOutputs);
        for (const bool with_bias : {false, true}) {
            quantised_matmul({.x = {x.data(), kRows, num_k, num_k},
                              .weight = {nullptr, kOutputs, num_k, find_block_format("Q8_0"), blocks.data()},
                              .bias = with_bias ? bias.data() : nullptr,
                              .in_multiplier = 0.75F,
                              .out = dense_rows(out.data(), kRows, kOutputs)});
            for (int64_t m = 0; m < kRows; ++m)
                for (int64_t n = 0; n < kOutputs; ++n)
                    ASSERT_EQ(out[m * kOutputs + n],
                              by_definition(&x[m * num_k], 0.75F, &w[n * num_k], num_k) + (with_bias ? bias[n] : 0.0F))
                        << num_k << " " << m << " " << n;
        }
    }
}

TEST(QuantisedMatmul, KeepsValuesThatBf16WouldRound) {
    // One block of Q4_1: d = 1, m = 2^-10, q = 1 in the low nibbles: 1 + 2^-10 is no bf16.
    std::vector<std::byte> block(20, std::byte{0x00});
    block[1] = std::byte{0x3C};
    block[3] = std::byte{0x14};
    block[4] = std::byte{0x01};
    std::vector<float> x(32, 0.0F);
    x[0] = 1.0F;
    float out = 0.0F;
    quantised_matmul({.x = {x.data(), 1, 32, 32},
                      .weight = {nullptr, 1, 32, find_block_format("Q4_1"), block.data()},
                      .out = dense_rows(&out, 1, 1)});
    EXPECT_EQ(out, 1.0F + 0x1p-10F);
}

TEST(QuantisedMatmul, ASubnormalWeightIsNotFlushed) {
    std::vector<std::byte> block(17, std::byte{0x02});  // MXFP4: e = 2, q = 2: 2 · 2^-126
    block[0] = std::byte{0x00};                         // e = 0: 2^-128
    std::vector<float> x(32, 0.0F);
    x[0] = 1.0F;
    float out = 0.0F;
    quantised_matmul({.x = {x.data(), 1, 32, 32},
                      .weight = {nullptr, 1, 32, find_block_format("MXFP4"), block.data()},
                      .out = dense_rows(&out, 1, 1)});
    EXPECT_EQ(out, 0x1p-127F);
}

TEST(QuantisedEmbedding, IsTheRowsValuesTimesTheMultiplier) {
    constexpr int64_t kWidth = 64;
    const auto blocks = quantised(random_floats(4 * kWidth, 1.0F, 4));
    std::vector<float> values(4 * kWidth);
    dequantise(*find_block_format("Q8_0"), blocks, values);
    const std::vector<int32_t> tokens = {3, 0, 3};
    std::vector<float> out(tokens.size() * kWidth);
    quantised_embedding({.tokens = tokens.data(),
                         .table = {nullptr, 4, kWidth, find_block_format("Q8_0"), blocks.data()},
                         .multiplier = 12.0F,
                         .out = dense_rows(out.data(), 3, kWidth)});
    for (size_t r = 0; r < tokens.size(); ++r)
        for (int64_t i = 0; i < kWidth; ++i) ASSERT_EQ(out[r * kWidth + i], values[tokens[r] * kWidth + i] * 12.0F);
}

}  // namespace
}  // namespace verbatim::reference
