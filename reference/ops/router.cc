#include "reference/ops/router.h"

#include <algorithm>
#include <vector>

#include "engine/base/check.h"
#include "reference/numerics/bf16.h"
#include "reference/numerics/math.h"
#include "reference/ops/matmul.h"
#include "reference/ops/rms_norm.h"

namespace verbatim::reference {

void check(const RouterArgs& args) {
    CHECK_GT(args.x.width, 0);
    CHECK_GT(args.out.width, 0);
    check_rows(args.x, args.out.num_rows, args.x.width);
    check_rows(args.out, args.out.num_rows, args.out.width);
    check_pointer(args.weight, args.out.width * args.x.width);
}

void router(const RouterArgs& args) {
    check(args);
    std::vector<float> a(static_cast<size_t>(args.x.width));
    for (int64_t m = 0; m < args.out.num_rows; ++m) {
        for (int64_t k = 0; k < args.x.width; ++k) a[k] = bf16_value(args.x.row(m)[k]);
        for (int64_t e = 0; e < args.out.width; ++e) {
            args.out.row(m)[e] = dot_n3_of_floats(a.data(), args.weight + e * args.x.width, args.x.width);
        }
    }
}

void check(const ChooseArgs& args) {
    CHECK(args.moe != nullptr);
    const MoeConfig& moe = *args.moe;
    CHECK(moe.n_chosen > 0 && moe.n_chosen <= moe.n_experts, "{} of {}", moe.n_chosen, moe.n_experts);
    CHECK(moe.n_groups > 0 && moe.n_experts % moe.n_groups == 0, "{} groups of {}", moe.n_groups, moe.n_experts);
    check_rows(args.logits, args.out.num_rows, moe.n_experts);
    check_rows(args.out, args.out.num_rows, 2 * int64_t{moe.n_chosen});
    if (moe.router == RouterKind::kSigmoidBias) check_pointer(args.choice_bias, moe.n_experts);
}

namespace {

// The places of the `count` first by (score descending, place ascending), ascending; NaN after every number.
std::vector<int32_t> first_by_score(const std::vector<float>& scores, const std::vector<int32_t>& places,
                                    int32_t count) {
    std::vector<int32_t> order = places;
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        const bool only_b_is_nan = scores[b] != scores[b] && scores[a] == scores[a];
        return scores[a] > scores[b] || only_b_is_nan;
    });
    order.resize(static_cast<size_t>(count));
    std::sort(order.begin(), order.end());
    return order;
}

// 0 .. count − 1
std::vector<int32_t> all_places(int32_t count) {
    std::vector<int32_t> places;
    for (int32_t i = 0; i < count; ++i) places.push_back(i);
    return places;
}

std::vector<float> softmax(const std::vector<float>& logits) {
    float greatest = logits[0];
    for (const float logit : logits) greatest = max_f32(greatest, logit);
    std::vector<float> p;
    for (const float logit : logits) p.push_back(exp_f32(logit - greatest));
    const float sum = sum_n4(p.data(), static_cast<int64_t>(p.size()));
    for (float& value : p) value = value / sum;
    return p;
}

// The experts of the groups that take part.
std::vector<int32_t> experts_in_play(const MoeConfig& moe, const std::vector<float>& choice) {
    if (moe.n_groups == 1) return all_places(moe.n_experts);
    const int32_t per_group = moe.n_experts / moe.n_groups;
    std::vector<float> group_scores;
    for (int32_t group = 0; group < moe.n_groups; ++group) {
        std::vector<int32_t> members;
        for (int32_t i = 0; i < per_group; ++i) members.push_back(group * per_group + i);
        const int32_t greatest = first_by_score(choice, members, 1).front();
        std::erase(members, greatest);
        group_scores.push_back(choice[greatest] + choice[first_by_score(choice, members, 1).front()]);
    }
    std::vector<int32_t> experts;
    for (const int32_t group : first_by_score(group_scores, all_places(moe.n_groups), moe.n_chosen_groups)) {
        for (int32_t i = 0; i < per_group; ++i) experts.push_back(group * per_group + i);
    }
    return experts;
}

// s of the router's kind; the logits themselves where weights are made of the chosen ones alone.
std::vector<float> scores_of(const MoeConfig& moe, const std::vector<float>& logits) {
    if (moe.router == RouterKind::kSoftmaxAll) return softmax(logits);
    std::vector<float> scores = logits;
    if (moe.router == RouterKind::kSigmoidBias) {
        for (float& score : scores) score = sigmoid_f32(score);
    }
    return scores;
}

// `of_chosen`: the chosen experts' scores, in ascending id.
std::vector<float> weights_of(const MoeConfig& moe, const std::vector<float>& of_chosen) {
    std::vector<float> weights = moe.router == RouterKind::kSoftmaxChosen ? softmax(of_chosen) : of_chosen;
    if (moe.normalize) {
        float total = 0.0F;
        for (const float weight : weights) total = total + weight;
        total = total + static_cast<float>(moe.sum_epsilon);
        for (float& weight : weights) weight = weight / total;
    }
    for (float& weight : weights) weight = weight * static_cast<float>(moe.scale);
    return weights;
}

void choose_row(const MoeConfig& moe, const float* logits, const float* choice_bias, float* out) {
    const std::vector<float> scores = scores_of(moe, {logits, logits + moe.n_experts});
    std::vector<float> choice = scores;
    if (moe.router == RouterKind::kSigmoidBias) {
        for (int32_t e = 0; e < moe.n_experts; ++e) choice[e] = scores[e] + choice_bias[e];
    }
    const std::vector<int32_t> chosen = first_by_score(choice, experts_in_play(moe, choice), moe.n_chosen);
    std::vector<float> of_chosen;
    for (const int32_t e : chosen) of_chosen.push_back(scores[e]);
    const std::vector<float> weights = weights_of(moe, of_chosen);
    for (int32_t i = 0; i < moe.n_chosen; ++i) {
        out[i] = static_cast<float>(chosen[i]);
        out[moe.n_chosen + i] = weights[i];
    }
}

}  // namespace

void choose(const ChooseArgs& args) {
    check(args);
    for (int64_t m = 0; m < args.out.num_rows; ++m) {
        choose_row(*args.moe, args.logits.row(m), args.choice_bias, args.out.row(m));
    }
}

}  // namespace verbatim::reference
