#include "reference/ops/experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "reference/numerics/math.h"
#include "reference/ops/elementwise.h"
#include "reference/ops/matmul.h"
#include "tests/reference/ops/op_values.h"

namespace verbatim::reference {
namespace {

constexpr int64_t kRowWidth = 37;
constexpr int64_t kExpertFf = 21;
constexpr int64_t kNumExperts = 6;

struct ExpertCase {
    std::vector<std::vector<uint16_t>> bits;  // gate, up, down of each expert
    std::vector<MlpWeights> weights{kNumExperts};

    ExpertCase() {
        bits.reserve(3 * kNumExperts);
        for (uint64_t e = 0; e < kNumExperts; ++e) {
            const auto matrix = [&](int64_t rows, int64_t cols) {
                bits.push_back(draw_bf16(rows * cols, 100 + bits.size()));
                return MatrixView{bits.back().data(), rows, cols};
            };
            weights[e].gate = matrix(kExpertFf, kRowWidth);
            weights[e].up = matrix(kExpertFf, kRowWidth);
            weights[e].down = matrix(kRowWidth, kExpertFf);
        }
    }
    // `chosen` [num_rows][2 · n_chosen]
    [[nodiscard]] std::vector<float> run(MlpKind kind, const std::vector<float>& x, const std::vector<float>& chosen,
                                         int64_t n_chosen) const {
        const auto num_rows = static_cast<int64_t>(x.size()) / kRowWidth;
        std::vector<float> out(x.size());
        experts({.kind = kind,
                 .n_chosen = n_chosen,
                 .x = dense_rows(x.data(), num_rows, kRowWidth),
                 .chosen = dense_rows(chosen.data(), num_rows, 2 * n_chosen),
                 .weights = weights,
                 .out = dense_rows(out.data(), num_rows, kRowWidth)});
        return out;
    }
};

std::vector<float> times(const std::vector<float>& x, MatrixView weight) {
    std::vector<float> out(static_cast<size_t>(weight.rows));
    matmul({.x = dense_rows(x.data(), 1, weight.cols),
            .weight = weight.data,
            .out = dense_rows(out.data(), 1, weight.rows)});
    return out;
}

TEST(Experts, AreMlpsAddedByFmaInTheirOrderFromZero) {
    const ExpertCase c;
    const std::vector<float> x = draw_values(kRowWidth, 7);
    for (const MlpKind kind : {MlpKind::kGatedSilu, MlpKind::kReluSquared}) {
        std::vector<float> wanted(kRowWidth, 0.0F);
        const std::vector<std::pair<int, float>> choice = {{1, 0.3F}, {2, -1.7F}, {5, 0.01F}};
        for (const auto& [e, weight] : choice) {
            std::vector<float> up = times(x, c.weights[e].up);
            const std::vector<float> gate = times(x, c.weights[e].gate);
            for (size_t i = 0; i < up.size(); ++i) {
                const float positive = std::max(up[i], 0.0F);
                up[i] = kind == MlpKind::kGatedSilu ? up[i] * silu_f32(gate[i]) : positive * positive;
            }
            const std::vector<float> y = times(up, c.weights[e].down);
            for (size_t i = 0; i < y.size(); ++i) wanted[i] = fma_f32(weight, y[i], wanted[i]);
        }
        EXPECT_EQ(bits_of(c.run(kind, x, {1, 2, 5, 0.3F, -1.7F, 0.01F}, 3)), bits_of(wanted));
    }
}

TEST(Experts, BatchCompositionDoesNotChangeARow) {
    const ExpertCase c;
    const std::vector<float> x = draw_values(3 * kRowWidth, 8);
    const std::vector<float> chosen = {0, 4, 0.5F, 0.25F, 4, 5, 1.5F, 2.0F, 0, 5, 0.125F, 3.0F};
    const std::vector<float> together = c.run(MlpKind::kGatedSilu, x, chosen, 2);
    for (size_t r = 0; r < 3; ++r) {
        const std::vector<float> row(x.begin() + r * kRowWidth, x.begin() + (r + 1) * kRowWidth);
        const std::vector<float> its(chosen.begin() + 4 * r, chosen.begin() + 4 * (r + 1));
        const std::vector<float> alone = c.run(MlpKind::kGatedSilu, row, its, 2);
        EXPECT_EQ(bits_of(alone), bits_of({together.begin() + r * kRowWidth, together.begin() + (r + 1) * kRowWidth}));
    }
}

TEST(AddRouted, AddsOrOpensTheSharedBranch) {
    const std::vector<float> routed = draw_values(10, 1);
    const std::vector<float> shared = draw_values(10, 2);
    const std::vector<float> gate = {0.7F, -1.2F};
    std::vector<float> plain = shared, gated = shared, wanted_plain, wanted_gated;
    for (size_t i = 0; i < 10; ++i) {
        wanted_plain.push_back(routed[i] + shared[i]);
        wanted_gated.push_back(fma_f32(sigmoid_f32(gate[i / 5]), shared[i], routed[i]));
    }
    add_routed({.routed = dense_rows(routed.data(), 2, 5), .gate = {}, .branch = dense_rows(plain.data(), 2, 5)});
    add_routed({.routed = dense_rows(routed.data(), 2, 5),
                .gate = dense_rows(gate.data(), 2, 1),
                .branch = dense_rows(gated.data(), 2, 5)});
    EXPECT_EQ(bits_of(plain), bits_of(wanted_plain));
    EXPECT_EQ(bits_of(gated), bits_of(wanted_gated));
}

}  // namespace
}  // namespace verbatim::reference
