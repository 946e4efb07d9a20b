#include "reference/ops/router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "reference/numerics/bf16.h"
#include "reference/numerics/math.h"
#include "reference/ops/matmul.h"
#include "reference/ops/rms_norm.h"
#include "tests/reference/ops/op_values.h"

namespace verbatim::reference {
namespace {

struct Choice {
    std::vector<int32_t> ids;
    std::vector<float> weights;
};

Choice choose_one(const MoeConfig& moe, const std::vector<float>& logits, const std::vector<float>& bias = {}) {
    std::vector<float> out(static_cast<size_t>(2 * moe.n_chosen));
    choose({.moe = &moe,
            .logits = dense_rows(logits.data(), 1, moe.n_experts),
            .choice_bias = bias.empty() ? nullptr : bias.data(),
            .out = dense_rows(out.data(), 1, 2 * int64_t{moe.n_chosen})});
    Choice choice;
    for (int32_t i = 0; i < moe.n_chosen; ++i) choice.ids.push_back(static_cast<int32_t>(out[i]));
    choice.weights.assign(out.begin() + moe.n_chosen, out.end());
    return choice;
}

MoeConfig moe_of(RouterKind router, int32_t n_experts, int32_t n_chosen) {
    MoeConfig moe;
    moe.router = router;
    moe.n_experts = n_experts;
    moe.n_chosen = n_chosen;
    moe.d_ff = 1;
    return moe;
}

TEST(Router, IsTheMatmulOfAbf16Router) {
    for (const int64_t width : {1, 2, 63, 255, 256, 257, 700}) {
        const std::vector<float> x = draw_values(3 * width, 1);
        const std::vector<uint16_t> bits = draw_bf16(5 * width, 2);
        std::vector<float> wide;
        for (const uint16_t bf16 : bits) wide.push_back(bf16_to_float(bf16));
        std::vector<float> by_matmul(15), by_router(15);
        matmul({.x = dense_rows(x.data(), 3, width), .weight = bits.data(), .out = dense_rows(by_matmul.data(), 3, 5)});
        router({.x = dense_rows(x.data(), 3, width), .weight = wide.data(), .out = dense_rows(by_router.data(), 3, 5)});
        EXPECT_EQ(bits_of(by_router), bits_of(by_matmul)) << width;
    }
}

TEST(Router, DoesNotRoundABinary32RouterButItsInput) {
    const std::vector<float> x = {1.0F + 0x1p-9F};  // bf16: 1
    const std::vector<float> weight = {1.0F + 0x1p-20F};
    float out = 0;
    router({.x = dense_rows(x.data(), 1, 1), .weight = weight.data(), .out = dense_rows(&out, 1, 1)});
    EXPECT_EQ(out, weight[0]);
}

TEST(Choose, TheBiasAffectsTheChoiceAndNotTheWeight) {
    const MoeConfig moe = moe_of(RouterKind::kSigmoidBias, 4, 2);
    const Choice choice = choose_one(moe, {2.0F, 1.0F, 0.0F, -3.0F}, {0, 0, 0, 10});
    EXPECT_EQ(choice.ids, (std::vector<int32_t>{0, 3}));
    EXPECT_EQ(bits_of(choice.weights), bits_of({sigmoid_f32(2.0F), sigmoid_f32(-3.0F)}));
}

TEST(Choose, GivesTiesToTheLowerIdAndNaNTheLastPlace) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    MoeConfig moe = moe_of(RouterKind::kSoftmaxChosen, 6, 2);
    EXPECT_EQ(choose_one(moe, {1, 1, 1, 1, 1, 1}).ids, (std::vector<int32_t>{0, 1}));
    EXPECT_EQ(choose_one(moe, {0, 1, 2, 1, 1, 0}).ids, (std::vector<int32_t>{1, 2}));
    EXPECT_EQ(choose_one(moe, {-0.0F, 0.0F, -0.0F, 0, 0, 0}).ids, (std::vector<int32_t>{0, 1}));
    EXPECT_EQ(choose_one(moe, {nan, -5, nan, -7, nan, nan}).ids, (std::vector<int32_t>{1, 3}));
    EXPECT_EQ(choose_one(moe, {nan, nan, nan, -7, nan, nan}).ids, (std::vector<int32_t>{0, 3}));
    EXPECT_EQ(choose_one(moe, {nan, nan, nan, nan, nan, nan}).ids, (std::vector<int32_t>{0, 1}));
    const float infinity = std::numeric_limits<float>::infinity();
    EXPECT_EQ(choose_one(moe, {nan, -infinity, 0, 0, 0, infinity}).ids, (std::vector<int32_t>{2, 5}));
}

TEST(Choose, KeepsTheGroupsOfTheGreatestPairs) {
    MoeConfig moe = moe_of(RouterKind::kSigmoidBias, 9, 2);
    moe.n_groups = 3;
    moe.n_chosen_groups = 1;
    // The greatest score is in group 0, the greatest pair in group 1, the greatest three in group 2.
    const std::vector<float> zeros(9, 0.0F);
    const std::vector<float> bias = {4.0F, 0.0F, 0.0F, 2.5F, 2.5F, 0.0F, 2.25F, 2.25F, 2.25F};
    EXPECT_EQ(choose_one(moe, zeros, bias).ids, (std::vector<int32_t>{3, 4}));
    moe.n_chosen_groups = 2;  // of the pairs 4.5, 5 + 1 and 4.5 + 1: groups 1 and, of equals, the lower
    EXPECT_EQ(choose_one(moe, zeros, {4.5F, 0.0F, 0.0F, 2.5F, 2.5F, 0.0F, 2.25F, 2.25F, 2.25F}).ids,
              (std::vector<int32_t>{0, 3}));
    moe.n_chosen_groups = 3;
    EXPECT_EQ(choose_one(moe, zeros, bias).ids, (std::vector<int32_t>{0, 3}));
}

TEST(Choose, KeepsOneOfTwoGroups) {
    MoeConfig moe = moe_of(RouterKind::kSigmoidBias, 6, 2);
    moe.n_groups = 2;
    moe.n_chosen_groups = 1;
    EXPECT_EQ(choose_one(moe, std::vector<float>(6, 0.0F), {4.0F, 0.0F, 0.0F, 2.5F, 2.5F, 0.0F}).ids,
              (std::vector<int32_t>{3, 4}));
}

TEST(Choose, NormalisesInAscendingIdThenScales) {
    MoeConfig moe = moe_of(RouterKind::kSigmoidBias, 5, 3);
    moe.normalize = true;
    moe.sum_epsilon = 0.25;
    moe.scale = 2.5;
    const std::vector<float> logits = {0.3F, 7.1F, -9.0F, -1.3F, 2.2F};
    const Choice choice = choose_one(moe, logits, std::vector<float>(5, 0.0F));
    EXPECT_EQ(choice.ids, (std::vector<int32_t>{0, 1, 4}));
    const std::vector<float> s = {sigmoid_f32(logits[0]), sigmoid_f32(logits[1]), sigmoid_f32(logits[4])};
    const float total = ((s[0] + s[1]) + s[2]) + 0.25F;
    EXPECT_EQ(bits_of(choice.weights), bits_of({(s[0] / total) * 2.5F, (s[1] / total) * 2.5F, (s[2] / total) * 2.5F}));
}

// The sum of three that differs by its order, so that slots in order of score would show.
TEST(Choose, SumsOfWeightsDoNotGoByScore) {
    MoeConfig moe = moe_of(RouterKind::kSoftmaxAll, 3, 3);
    moe.normalize = true;
    int seen = 0;
    for (uint64_t seed = 0; seed < 50; ++seed) {
        const std::vector<float> logits = draw_values(3, seed);
        std::vector<float> p;
        const float greatest = std::ranges::max(logits);
        for (const float logit : logits) p.push_back(exp_f32(logit - greatest));
        const float sum = sum_n4(p.data(), 3);
        for (float& value : p) value = value / sum;
        const float ascending = (p[0] + p[1]) + p[2];
        std::vector<float> sorted = p;
        std::ranges::sort(sorted, std::greater<>());
        seen += ascending != (sorted[0] + sorted[1]) + sorted[2];
        const Choice choice = choose_one(moe, logits);
        EXPECT_EQ(bits_of(choice.weights), bits_of({p[0] / ascending, p[1] / ascending, p[2] / ascending}));
    }
    EXPECT_GT(seen, 0);
}

TEST(Choose, OfTheChosenTakesTheSoftmaxOverThemAlone) {
    const MoeConfig moe = moe_of(RouterKind::kSoftmaxChosen, 4, 2);
    const Choice choice = choose_one(moe, {1.5F, -2.0F, 3.0F, 1.0F});
    EXPECT_EQ(choice.ids, (std::vector<int32_t>{0, 2}));
    const std::vector<float> p = {exp_f32(-1.5F), exp_f32(0.0F)};
    const float sum = sum_n4(p.data(), 2);
    EXPECT_EQ(bits_of(choice.weights), bits_of({p[0] / sum, p[1] / sum}));
}

}  // namespace
}  // namespace verbatim::reference
