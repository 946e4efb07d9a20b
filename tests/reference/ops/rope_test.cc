#include "reference/ops/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "tests/reference/ops/op_values.h"

namespace verbatim::reference {
namespace {

RopeConfig config_of(RopeKind kind) {
    return {.kind = kind,
            .n_rotary_dims = 64,
            .theta = 500000.0,
            .factor = 8.0,
            .low_freq_factor = 1.0,
            .high_freq_factor = 4.0,
            .original_max_position_embeddings = 8192};
}

TEST(RopeTable, FrequenciesAreThoseOfTheThreeScalings) {
    for (const RopeKind kind : {RopeKind::kDefault, RopeKind::kLinear, RopeKind::kLlama3}) {
        const RopeTable table(config_of(kind), 1);
        ASSERT_EQ(table.n_pairs(), 32);
        int num_kept = 0;
        int num_slowed = 0;
        for (int i = 0; i < 32; ++i) {
            const double base = std::pow(500000.0, -2.0 * i / 64.0);
            double wanted = base;
            if (kind == RopeKind::kLinear) wanted = base / 8.0;
            if (kind == RopeKind::kLlama3) {
                const double turns = 8192.0 * base / (2.0 * std::numbers::pi);  // within the original context
                const double blend = std::clamp((turns - 1.0) / (4.0 - 1.0), 0.0, 1.0);
                wanted = base * (blend + (1.0 - blend) / 8.0);
                num_kept += blend == 1.0 ? 1 : 0;
                num_slowed += blend == 0.0 ? 1 : 0;
            }
            EXPECT_NEAR(table.inv_freq()[i] / wanted, 1.0, 1e-14) << static_cast<int>(kind) << " " << i;
        }
        // All three branches of Llama 3's rule were taken.
        if (kind == RopeKind::kLlama3) {
            EXPECT_TRUE(num_kept > 0 && num_slowed > 0 && num_kept + num_slowed < 32);
        }
    }
}

TEST(RopeTable, HoldsRoundedCosAndSinOfTheAngles) {
    const RopeTable table(config_of(RopeKind::kDefault), 3000);
    for (const int64_t position : {0, 1, 2, 777, 2999}) {
        for (int64_t i = 0; i < 32; ++i) {
            const double angle = static_cast<double>(position) * table.inv_freq()[i];
            EXPECT_EQ(table.cos(position)[i], static_cast<float>(std::cos(angle)));
            EXPECT_EQ(table.sin(position)[i], static_cast<float>(std::sin(angle)));
        }
    }
}

TEST(RopeTable, GrowingKeepsExistingPositions) {
    RopeTable grown(config_of(RopeKind::kLlama3), 5);
    const Digest before = grown.digest(5);
    grown.extend(100);
    EXPECT_EQ(grown.digest(5), before);
    EXPECT_EQ(grown.digest(100), RopeTable(config_of(RopeKind::kLlama3), 100).digest(100));
    EXPECT_NE(grown.digest(100), before);
}

TEST(Rope, TurnsPairsOfTheRotaryDimsAndLeavesTheRest) {
    RopeConfig config = config_of(RopeKind::kDefault);
    config.n_rotary_dims = 6;
    const RopeTable table(config, 50);
    const std::vector<float> x = draw_values(2 * 3 * 10, 1);
    std::vector<float> turned = x;
    const std::vector<int64_t> positions = {0, 49};
    rope({.x = dense_rows(turned.data(), 2, 30),
          .n_heads = 3,
          .head_dim = 10,
          .positions = positions.data(),
          .table = &table});
    for (int64_t i = 0; i < 30; ++i) EXPECT_EQ(turned[i], x[i]);  // position 0 turns by nothing
    for (int64_t h = 0; h < 3; ++h) {
        const float* in = &x[30 + h * 10];
        const float* out = &turned[30 + h * 10];
        for (int64_t i = 0; i < 3; ++i) {
            const float c = table.cos(49)[i];
            const float s = table.sin(49)[i];
            EXPECT_EQ(out[i], std::fma(in[i], c, -(in[i + 3] * s)));
            EXPECT_EQ(out[i + 3], std::fma(in[i + 3], c, in[i] * s));
        }
        for (int64_t i = 6; i < 10; ++i) EXPECT_EQ(out[i], in[i]);
    }
}

TEST(RopeDeathTest, RefusesAPositionBeyondTheTable) {
    const RopeTable table(config_of(RopeKind::kDefault), 10);
    std::vector<float> x(64);
    const int64_t position = 10;
    EXPECT_DEATH(
        rope({.x = dense_rows(x.data(), 1, 64), .n_heads = 1, .head_dim = 64, .positions = &position, .table = &table}),
        "position 10 of row 0, table 10");
}

}  // namespace
}  // namespace verbatim::reference
