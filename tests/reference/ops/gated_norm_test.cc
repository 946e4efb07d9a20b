#include "reference/ops/gated_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "reference/numerics/math.h"
#include "reference/ops/rms_norm.h"
#include "tests/reference/ops/op_values.h"

namespace verbatim::reference {
namespace {

constexpr int64_t kNormWidth = 96;
constexpr float kEps = 1e-5F;

struct NormCase {
    std::vector<float> y = draw_values(2 * kNormWidth, 1);
    std::vector<float> z = draw_values(2 * kNormWidth, 2);
    std::vector<float> weight = draw_values(kNormWidth, 3);

    [[nodiscard]] std::vector<float> run(MambaGate gate, int64_t n_groups) const {
        std::vector<float> out = y;
        gated_norm({.gate = gate,
                    .n_groups = n_groups,
                    .z = dense_rows(z.data(), 2, kNormWidth),
                    .weight = weight.data(),
                    .eps = kEps,
                    .y = dense_rows(out.data(), 2, kNormWidth)});
        return out;
    }
    void apply_gate(std::vector<float>& values) const {
        for (size_t i = 0; i < values.size(); ++i) values[i] = values[i] * silu_f32(z[i]);
    }
    void apply_norm(std::vector<float>& values, int64_t n_groups) const {
        const int64_t width = kNormWidth / n_groups;
        for (int64_t first = 0; first < 2 * kNormWidth; first += width) {
            const float mean = sum_squares_n4(&values[first], width) / static_cast<float>(width);
            const float scale = 1.0F / std::sqrt(mean + kEps);
            for (int64_t i = first; i < first + width; ++i) values[i] = (values[i] * scale) * weight[i % kNormWidth];
        }
    }
};

TEST(GatedNorm, GatesAloneBeforeOrAfterTheNorm) {
    const NormCase c;
    for (const int64_t n_groups : {1, 2, 8}) {
        std::vector<float> gate_only = c.y;
        c.apply_gate(gate_only);
        EXPECT_EQ(bits_of(c.run(MambaGate::kGateOnly, n_groups)), bits_of(gate_only));

        std::vector<float> gate_first = c.y;
        c.apply_gate(gate_first);
        c.apply_norm(gate_first, n_groups);
        EXPECT_EQ(bits_of(c.run(MambaGate::kGateThenNorm, n_groups)), bits_of(gate_first));

        std::vector<float> norm_first = c.y;
        c.apply_norm(norm_first, n_groups);
        c.apply_gate(norm_first);
        EXPECT_EQ(bits_of(c.run(MambaGate::kNormThenGate, n_groups)), bits_of(norm_first));
    }
}

TEST(GatedNorm, GroupsAreNormedApart) {
    NormCase c;
    const std::vector<float> before = c.run(MambaGate::kGateThenNorm, 2);
    for (int64_t i = kNormWidth / 2; i < kNormWidth; ++i) c.y[i] *= 100.0F;
    const std::vector<float> after = c.run(MambaGate::kGateThenNorm, 2);
    for (int64_t i = 0; i < kNormWidth / 2; ++i) ASSERT_EQ(after[i], before[i]);
    EXPECT_NE(bits_of(c.run(MambaGate::kGateThenNorm, 1)), bits_of(after));
}

TEST(GatedNormDeathTest, RefusesGroupsThatDoNotDivideTheRow) {
    EXPECT_DEATH((void)NormCase{}.run(MambaGate::kGateThenNorm, 5), "1 vs 0");
}

}  // namespace
}  // namespace verbatim::reference
