#include "reference/ops/fp8_matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "reference/model/scaled_blocks.h"
#include "reference/ops/quantised.h"
#include "tests/reference/ops/op_values.h"
#include "tests/support/random_blocks.h"

namespace verbatim::reference {
namespace {

struct Fp8Row {
    std::vector<float> values;
    std::vector<float> scales;
};

Fp8Row fp8_row(const std::vector<float>& x, Fp8Sharing sharing, const RowFactors& factors = {}) {
    const auto count = static_cast<int64_t>(x.size());
    const int64_t columns = fp8_columns(sharing, count);
    Fp8Row row{std::vector<float>(x.size()), std::vector<float>(static_cast<size_t>((count + columns - 1) / columns))};
    quantise_fp8_row({x.data(), count, factors, sharing, row.values.data(), row.scales.data()});
    return row;
}

TEST(QuantiseFp8Row, DividesByTheGreatestMagnitudesPartOf448) {
    std::vector<float> x(32, 0.0F);
    x[0] = -896.0F;
    x[1] = 34.0F;   // 17 in units of the scale, of 16 and 18
    x[2] = 0.001F;  // below half of 2^-9 of it
    x[3] = -3.0F;
    const Fp8Row row = fp8_row(x, Fp8Sharing::kRow);
    EXPECT_EQ(row.scales, std::vector{2.0F});
    EXPECT_EQ(std::vector<float>(row.values.begin(), row.values.begin() + 5),
              (std::vector<float>{-448.0F, 16.0F, 0.0F, -1.5F, 0.0F}));
    EXPECT_EQ(fp8_row(x, Fp8Sharing::kRow, {0.25F}).scales[0], 0.5F);
}

// 1071 · (1 ÷ 63) is above 17, which lies between 16 and 18.
TEST(QuantiseFp8Row, DividesAndDoesNotMultiplyByTheRoundedInverse) {
    std::vector<float> x(32, 0.0F);
    x[0] = 63.0F * 448;
    x[1] = 1071.0F;
    EXPECT_EQ(fp8_row(x, Fp8Sharing::kRow).values[1], 16.0F);
}

TEST(QuantiseFp8Row, GroupsHaveScalesOfTheirOwn) {
    std::vector<float> x(288, 1.0F);
    x[127] = 448.0F;
    x[128] = 896.0F;
    x[287] = 1792.0F;
    EXPECT_EQ(fp8_row(x, Fp8Sharing::kGroups).scales, (std::vector{1.0F, 2.0F, 4.0F}));
    EXPECT_EQ(fp8_row(x, Fp8Sharing::kRow).scales, std::vector{4.0F});
    EXPECT_EQ(fp8_row(x, Fp8Sharing::kGroups).values[1], 1.0F);
    EXPECT_EQ(fp8_row(x, Fp8Sharing::kGroups).values[130], 0.5F);
}

TEST(QuantiseFp8Row, WithoutAScaleARowIsZeroAndOneThatIsNotFiniteHasNan) {
    for (const Fp8Sharing sharing : {Fp8Sharing::kRow, Fp8Sharing::kGroups}) {
        for (const float tiny : {0.0F, -0.0F, 0x1p-149F, 0x1p-142F}) {
            const Fp8Row row = fp8_row(std::vector<float>(64, tiny), sharing);
            EXPECT_EQ(row.scales[0], 0.0F) << tiny;
            EXPECT_EQ(row.values, std::vector<float>(64, 0.0F)) << tiny;
        }
        using Limits = std::numeric_limits<float>;
        for (const float bad : {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN()}) {
            std::vector<float> x(64, 1.0F);
            x[63] = bad;
            const Fp8Row row = fp8_row(x, sharing);
            EXPECT_TRUE(std::isnan(row.scales[0])) << bad;
            EXPECT_EQ(row.values, std::vector<float>(64, 0.0F)) << bad;
        }
    }
}

// A scale that is subnormal is coarse: what would be beyond 448 stays there.
TEST(QuantiseFp8Row, SaturatesUnderTheSmallestScales) {
    const Fp8Row row = fp8_row(std::vector<float>(32, 1.4F * 448 * 0x1p-149F), Fp8Sharing::kRow);
    EXPECT_EQ(row.scales[0], 0x1p-149F);
    EXPECT_EQ(row.values[0], 448.0F);
}

// Whatever the row's magnitudes are: it divides by the recipe's scale, and what is beyond 448 of it becomes 448.
TEST(QuantiseFp8Row, AStaticScaleIsTheRecipes) {
    std::vector<float> x(32, 0.0F);
    x[0] = -3.0F;
    x[1] = 17.0F;
    x[2] = 1e6F;
    const Fp8Row row = fp8_row(x, Fp8Sharing::kRow, {2.0F, 0.5F});
    EXPECT_EQ(row.scales, std::vector{0.5F});
    EXPECT_EQ(std::vector<float>(row.values.begin(), row.values.begin() + 3), (std::vector{-12.0F, 64.0F, 448.0F}));
    x[3] = std::numeric_limits<float>::max();
    EXPECT_TRUE(std::isnan(fp8_row(x, Fp8Sharing::kRow, {2.0F, 0.5F}).scales[0]));  // the product is infinite
    x[3] = 0.0F;
    EXPECT_EQ(fp8_row(x, Fp8Sharing::kRow, {2.0F, 1e-44F}).values[0], -448.0F);  // the quotient is infinite
    EXPECT_EQ(fp8_row(std::vector<float>(32, 0.0F), Fp8Sharing::kRow, {1.0F, 0.5F}).scales, std::vector{0.5F});
    for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
        x[31] = bad;
        const Fp8Row none = fp8_row(x, Fp8Sharing::kRow, {1.0F, 0.5F});
        EXPECT_TRUE(std::isnan(none.scales[0])) << bad;
        EXPECT_EQ(none.values, std::vector<float>(32, 0.0F)) << bad;
    }
}

struct Fp8Case {
    int64_t num_k = 0;
    Fp8Sharing sharing = Fp8Sharing::kRow;
    float static_scale = 0.0F;
};

std::vector<std::byte> fp8_blocks(const Fp8Case& of, int64_t rows, uint64_t seed) {
    std::mt19937_64 random(seed);
    return tests::random_fp8_blocks(of.sharing, rows, of.num_k, random);
}

MatrixView view_of(const Fp8Case& of, int64_t rows, const std::vector<std::byte>& blocks) {
    return {nullptr, rows, of.num_k, &kScaledFp8, blocks.data(), of.sharing, of.static_scale};
}

float e4m3_at(const std::vector<std::byte>& blocks, int64_t k) {
    return e4m3_value(std::to_integer<uint8_t>(blocks[static_cast<size_t>(k / 32 * 36 + 4 + k % 32)]));
}
float scale_at(const std::vector<std::byte>& blocks, int64_t k) {
    float scale = 0.0F;
    std::memcpy(&scale, &blocks[static_cast<size_t>(k / 32 * 36)], sizeof(scale));
    return scale;
}

class Fp8Matmul : public testing::TestWithParam<Fp8Case> {};

// The contract's formula for one output, by libm's fma.
TEST_P(Fp8Matmul, IsTheFormula) {
    const int64_t num_k = GetParam().num_k;
    const auto blocks = fp8_blocks(GetParam(), 1, 7);
    const auto x = draw_values(num_k, 8);
    const Fp8Row row = fp8_row(x, GetParam().sharing, {0.5F, GetParam().static_scale});
    const int64_t columns = fp8_columns(GetParam().sharing, num_k);
    float total = 0.0F;
    for (int64_t first = 0; first < num_k; first += columns) {
        const int64_t last = std::min(first + columns, num_k);
        float sum = 0.0F;
        for (int64_t chunk = first; chunk < last; chunk += 256) {
            float acc = 0.0F;
            for (int64_t k = chunk; k < std::min(chunk + 256, last); k += 2) {
                acc = std::fma(row.values[static_cast<size_t>(k + 1)], e4m3_at(blocks, k + 1), acc);
                acc = std::fma(row.values[static_cast<size_t>(k)], e4m3_at(blocks, k), acc);
            }
            sum += acc;
        }
        total = std::fma(scale_at(blocks, first) * row.scales[static_cast<size_t>(first / columns)], sum, total);
    }
    float out = 0.0F;
    const float bias = 0.25F;
    fp8_matmul({.x = {x.data(), 1, num_k, num_k},
                .weight = view_of(GetParam(), 1, blocks),
                .bias = &bias,
                .in_multiplier = 0.5F,
                .out = dense_rows(&out, 1, 1)});
    EXPECT_EQ(out, total + bias);
}

// The dequantised values in binary64, in any order.
TEST_P(Fp8Matmul, IsNearTheProductOfTheDequantisedValues) {
    constexpr int64_t kRows = 3;
    constexpr int64_t kOutputs = 37;
    const int64_t num_k = GetParam().num_k;
    const auto blocks = fp8_blocks(GetParam(), kOutputs, 9);
    const auto x = draw_values(kRows * num_k, 10);
    std::vector<float> out(kRows * kOutputs);
    linear({.x = {x.data(), kRows, num_k, num_k},
            .weight = view_of(GetParam(), kOutputs, blocks),
            .profile = Profile::kExactFp8,
            .out = dense_rows(out.data(), kRows, kOutputs)});
    std::vector<float> weights(static_cast<size_t>(num_k));
    for (int64_t m = 0; m < kRows; ++m) {
        const Fp8Row row = fp8_row({x.begin() + m * num_k, x.begin() + (m + 1) * num_k}, GetParam().sharing,
                                   {1.0F, GetParam().static_scale});
        const int64_t columns = fp8_columns(GetParam().sharing, num_k);
        for (int64_t n = 0; n < kOutputs; ++n) {
            view_of(GetParam(), kOutputs, blocks).read_row(n, weights);
            double sum = 0.0;
            double magnitudes = 0.0;
            for (int64_t k = 0; k < num_k; ++k) {
                const auto i = static_cast<size_t>(k);
                const double product =
                    double{row.values[i]} * row.scales[static_cast<size_t>(k / columns)] * weights[i];
                sum += product;
                magnitudes += std::abs(product);
            }
            EXPECT_NEAR(out[static_cast<size_t>(m * kOutputs + n)], sum, 1e-6 * magnitudes) << m << ", " << n;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Sharings, Fp8Matmul,
                         testing::Values(Fp8Case{32}, Fp8Case{544}, Fp8Case{1024},
                                         Fp8Case{544, Fp8Sharing::kRow, 0.003F}, Fp8Case{32, Fp8Sharing::kGroups},
                                         Fp8Case{416, Fp8Sharing::kGroups}, Fp8Case{1024, Fp8Sharing::kGroups}),
                         [](const auto& info) {
                             return fmt::format("{}_{}", info.param.num_k,
                                                info.param.static_scale > 0.0F           ? "static"
                                                : info.param.sharing == Fp8Sharing::kRow ? "row"
                                                                                         : "groups");
                         });

TEST(Fp8Matmul, AWeightThatIsNanMakesItsOutputNan) {
    const Fp8Case of{256, Fp8Sharing::kGroups};
    auto blocks = fp8_blocks(of, 2, 11);
    blocks[static_cast<size_t>(kScaledFp8.row_bytes(256) + kScaledFp8.row_bytes(160) + 4)] = std::byte{0x7F};
    const std::vector<float> x(256, 0.0F);
    std::vector<float> out(2);
    fp8_matmul({.x = {x.data(), 1, 256, 256}, .weight = view_of(of, 2, blocks), .out = dense_rows(out.data(), 1, 2)});
    EXPECT_EQ(out[0], 0.0F);
    EXPECT_TRUE(std::isnan(out[1]));
}

TEST(Fp8Matmul, RecipesThatLeaveActivationsAreComputedAsInExact) {
    const Fp8Case of{64, Fp8Sharing::kNone};
    const auto blocks = fp8_blocks({64, Fp8Sharing::kRow}, 2, 12);
    const auto x = draw_values(64, 13);
    std::vector<float> out(4);
    for (const Profile profile : {Profile::kExact, Profile::kExactFp8})
        linear({.x = {x.data(), 1, 64, 64},
                .weight = view_of(of, 2, blocks),
                .profile = profile,
                .out = dense_rows(&out[profile == Profile::kExact ? 0 : 2], 1, 2)});
    EXPECT_EQ(out[0], out[2]);
    EXPECT_EQ(out[1], out[3]);
}

}  // namespace
}  // namespace verbatim::reference
