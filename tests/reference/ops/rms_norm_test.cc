#include "reference/ops/rms_norm.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <vector>

#include "reference/numerics/math.h"
#include "tests/reference/ops/op_values.h"

namespace verbatim::reference {
namespace {

// N4 in words: the partial sums of residue classes mod 64, then a tree that pairs j with j + 32, 16, ... 1.
float tree(const std::vector<float>& partial, size_t first, size_t stride) {
    if (stride == partial.size()) return partial[first];
    return tree(partial, first, 2 * stride) + tree(partial, first + stride, 2 * stride);
}
template <typename Add>
float n4_by_definition(const std::vector<float>& x, Add add) {
    std::vector<float> partial(64, 0.0F);
    for (size_t i = 0; i < x.size(); ++i) partial[i % 64] = add(partial[i % 64], x[i]);
    return tree(partial, 0, 1);
}

RC_GTEST_PROP(SumN4, FollowsTheDefinitionForAnyLengthAndValues, (uint64_t seed)) {
    const auto n = *rc::gen::inRange<int64_t>(0, 400);
    const auto kind = *rc::gen::elementOf(std::vector<Values>(std::begin(kAllValues), std::end(kAllValues)));
    const std::vector<float> x = draw_values(n, seed, kind);
    const float sum = n4_by_definition(x, [](float partial, float value) { return partial + value; });
    const float squares =
        n4_by_definition(x, [](float partial, float value) { return std::fma(value, value, partial); });
    RC_ASSERT(bits_from_float(sum_n4(x.data(), n)) == bits_from_float(sum));
    RC_ASSERT(bits_from_float(sum_squares_n4(x.data(), n)) == bits_from_float(squares));
}

TEST(SumN4, PairsPartialsThatAre32Apart) {
    // 2^24, 1 and -2^24: the one survives only where it is not added to a large one first.
    std::vector<float> x(64, 0.0F);
    x[0] = 0x1p+24F;
    x[32] = -0x1p+24F;
    x[16] = 1.0F;
    EXPECT_EQ(sum_n4(x.data(), 64), 1.0F);
    std::swap(x[16], x[32]);
    EXPECT_EQ(sum_n4(x.data(), 64), 0.0F);
}

TEST(RmsNorm, IsTheFormulaInBits) {
    for (const int64_t n : {1, 7, 64, 100, 513}) {
        const std::vector<float> x = draw_values(3 * n, static_cast<uint64_t>(n));
        const std::vector<float> weight = draw_values(n, 99);
        std::vector<float> out(x.size());
        rms_norm({.x = dense_rows(x.data(), 3, n),
                  .weight = weight.data(),
                  .eps = 1e-5F,
                  .out = dense_rows(out.data(), 3, n)});
        for (int64_t r = 0; r < 3; ++r) {
            const float scale = 1.0F / std::sqrt(sum_squares_n4(&x[r * n], n) / static_cast<float>(n) + 1e-5F);
            for (int64_t i = 0; i < n; ++i) {
                ASSERT_EQ(bits_from_float(out[r * n + i]), bits_from_float((x[r * n + i] * scale) * weight[i]));
            }
        }
    }
}

TEST(RmsNorm, MayWriteOverItsInput) {
    const std::vector<float> x = draw_values(200, 5);
    const std::vector<float> weight = draw_values(100, 6);
    std::vector<float> apart(200);
    std::vector<float> in_place = x;
    rms_norm({.x = dense_rows(x.data(), 2, 100),
              .weight = weight.data(),
              .eps = 1e-6F,
              .out = dense_rows(apart.data(), 2, 100)});
    const FloatRows rows = dense_rows(in_place.data(), 2, 100);
    rms_norm({.x = rows, .weight = weight.data(), .eps = 1e-6F, .out = rows});
    EXPECT_EQ(bits_of(in_place), bits_of(apart));
}

TEST(RmsNorm, AgreesWithBinary64) {
    const std::vector<float> x = draw_values(1000, 7);
    const std::vector<float> weight(1000, 1.0F);
    std::vector<float> out(1000);
    rms_norm({.x = dense_rows(x.data(), 1, 1000),
              .weight = weight.data(),
              .eps = 1e-5F,
              .out = dense_rows(out.data(), 1, 1000)});
    double squares = 0.0;
    for (const float value : x) squares += static_cast<double>(value) * value;
    for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(out[i], x[i] / std::sqrt(squares / 1000 + 1e-5), 1e-6);
}

}  // namespace
}  // namespace verbatim::reference
