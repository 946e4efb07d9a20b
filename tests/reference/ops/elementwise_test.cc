#include "reference/ops/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "reference/numerics/math.h"
#include "tests/reference/ops/op_values.h"

namespace verbatim::reference {
namespace {

constexpr int64_t kRows = 3;
constexpr int64_t kWidth = 17;

std::vector<float> draw(uint64_t seed) { return draw_values(kRows * kWidth, seed); }
FloatRows rows_of(std::vector<float>& values) { return dense_rows(values.data(), kRows, kWidth); }

TEST(Elementwise, ScaleTouchesItsColumnsAlone) {
    std::vector<float> x = draw(1);
    const std::vector<float> before = x;
    scale({rows_of(x).columns(4, 5), 0.7F});
    for (int64_t i = 0; i < kRows * kWidth; ++i) {
        const bool inside = i % kWidth >= 4 && i % kWidth < 9;
        EXPECT_EQ(x[i], inside ? before[i] * 0.7F : before[i]);
    }
}

TEST(Elementwise, AddBranchIsAMultiplicationThenAnFma) {
    std::vector<float> residual = draw(2);
    std::vector<float> branch = draw(3);
    const std::vector<float> before = residual;
    int num_apart = 0;
    add_branch({.branch = rows_of(branch),
                .branch_multiplier = 0.44F,
                .residual_multiplier = 0.22F,
                .residual = rows_of(residual)});
    for (size_t i = 0; i < residual.size(); ++i) {
        ASSERT_EQ(residual[i], std::fma(branch[i] * 0.44F, 0.22F, before[i]));
        num_apart += residual[i] != before[i] + (branch[i] * 0.44F) * 0.22F ? 1 : 0;
    }
    EXPECT_GT(num_apart, 0);  // two roundings would have been seen
}

TEST(Elementwise, AddBranchWithoutMultipliersIsAnAddition) {
    std::vector<float> residual = draw(4);
    std::vector<float> branch = draw(5);
    const std::vector<float> before = residual;
    add_branch({.branch = rows_of(branch), .residual = rows_of(residual)});
    for (size_t i = 0; i < residual.size(); ++i) ASSERT_EQ(residual[i], before[i] + branch[i]);
}

TEST(Elementwise, SwigluMultipliesTheGateInsideSilu) {
    std::vector<float> up = draw(6);
    std::vector<float> gate = draw(7);
    const std::vector<float> before = up;
    swiglu({.gate = rows_of(gate), .gate_multiplier = 0.88F, .up = rows_of(up)});
    for (size_t i = 0; i < up.size(); ++i) {
        ASSERT_EQ(bits_from_float(up[i]), bits_from_float(before[i] * silu_f32(gate[i] * 0.88F)));
        ASSERT_NEAR(up[i], before[i] * 0.88 * gate[i] / (1 + std::exp(-0.88 * gate[i])), 1e-5);
    }
}

TEST(Elementwise, ReluSquaredDropsNegativesAndKeepsNan) {
    std::vector<float> up = draw(8);
    up[0] = -0.0F;
    up[1] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> before = up;
    relu_squared({rows_of(up)});
    EXPECT_EQ(bits_from_float(up[0]), 0U);
    EXPECT_TRUE(std::isnan(up[1]));
    for (size_t i = 2; i < up.size(); ++i) ASSERT_EQ(up[i], before[i] > 0 ? before[i] * before[i] : 0.0F);
}

TEST(Elementwise, LogitsAreMultipliedThenDivided) {
    std::vector<float> logits = draw(9);
    const std::vector<float> before = logits;
    int num_apart = 0;
    scale_logits({rows_of(logits), 1.0F, 3.0F});
    for (size_t i = 0; i < logits.size(); ++i) {
        ASSERT_EQ(logits[i], before[i] / 3.0F);
        num_apart += logits[i] != before[i] * (1.0F / 3.0F) ? 1 : 0;
    }
    EXPECT_GT(num_apart, 0);  // a division by three is not a multiplication by a third
    logits = before;
    scale_logits({rows_of(logits), 0.3125F, 7.0F});
    for (size_t i = 0; i < logits.size(); ++i) ASSERT_EQ(logits[i], (before[i] * 0.3125F) / 7.0F);
}

}  // namespace
}  // namespace verbatim::reference
