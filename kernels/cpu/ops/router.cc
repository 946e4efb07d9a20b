#include "kernels/cpu/ops/router.h"

#include <algorithm>

#include "engine/base/check.h"
#include "kernels/pair.h"
#include "reference/numerics/math.h"

namespace verbatim::cpu {

using reference::MoeConfig;
using reference::RouterKind;

namespace {

constexpr int64_t kPartials = 64;  // of NUMERICS N4

// Softmax in place over `count` values: exp against the greatest, an N4 sum, a division each.
void softmax_row(float* values, int64_t count) {
    float greatest = values[0];
    for (int64_t i = 1; i < count; ++i) greatest = reference::max_f32(greatest, values[i]);
    float partial[kPartials] = {};
    for (int64_t i = 0; i < count; ++i) {
        values[i] = reference::exp_f32(values[i] - greatest);
        partial[i % kPartials] += values[i];
    }
    for (int64_t half = kPartials / 2; half > 0; half /= 2) {
        for (int64_t j = 0; j < half; ++j) partial[j] += partial[j + half];
    }
    for (int64_t i = 0; i < count; ++i) values[i] = values[i] / partial[0];
}

// Whether a comes before b, which has the higher id: the lower id wins ties, NaN is last.
bool is_before(float b, float a) { return !(b > a) && (a == a || b != b); }

// The first of [begin, end) that is not taken; −1 if all are.
int32_t first_of(const std::vector<float>& scores, const std::vector<uint8_t>& taken, int32_t begin, int32_t end) {
    int32_t best = -1;
    for (int32_t i = begin; i < end; ++i) {
        if (taken[i] == 0 && (best < 0 || !is_before(scores[i], scores[best]))) best = i;
    }
    return best;
}

// Marks the experts of excluded groups as taken.
void exclude_groups(const MoeConfig& moe, ChoiceScratch& scratch) {
    const int32_t size = moe.n_experts / moe.n_groups;
    scratch.group_score.resize(static_cast<size_t>(moe.n_groups));
    for (int32_t g = 0; g < moe.n_groups; ++g) {
        const int32_t greatest = first_of(scratch.choice, scratch.taken, g * size, (g + 1) * size);
        scratch.taken[greatest] = 1;
        const int32_t second = first_of(scratch.choice, scratch.taken, g * size, (g + 1) * size);
        scratch.taken[greatest] = 0;
        scratch.group_score[g] = scratch.choice[greatest] + scratch.choice[second];
    }
    // The number of groups before this one decides whether it stays.
    for (int32_t g = 0; g < moe.n_groups; ++g) {
        int32_t rank = 0;
        for (int32_t other = 0; other < moe.n_groups; ++other) {
            const float score = scratch.group_score[g];
            const float theirs = scratch.group_score[other];
            rank += other < g ? is_before(score, theirs) : other > g && !is_before(theirs, score);
        }
        if (rank >= moe.n_chosen_groups) std::fill_n(scratch.taken.begin() + int64_t{g} * size, size, uint8_t{1});
    }
}

void score_row(const MoeConfig& moe, const float* logits, const float* choice_bias, ChoiceScratch& scratch) {
    scratch.scores.assign(logits, logits + moe.n_experts);
    if (moe.router == RouterKind::kSoftmaxAll) softmax_row(scratch.scores.data(), moe.n_experts);
    if (moe.router == RouterKind::kSigmoidBias) {
        for (float& score : scratch.scores) score = reference::sigmoid_f32(score);
    }
    scratch.choice = scratch.scores;
    if (moe.router == RouterKind::kSigmoidBias) {
        for (int32_t e = 0; e < moe.n_experts; ++e) scratch.choice[e] += choice_bias[e];
    }
}

}  // namespace

void pack_router(reference::VectorView router, int64_t n_experts, int64_t hidden, AlignedArray<float>& out) {
    CHECK_EQ(static_cast<int64_t>(router.size()), n_experts * hidden);
    const int64_t panels = (n_experts + kRouterLanes - 1) / kRouterLanes;
    const int64_t panel_floats = 2 * num_pairs(hidden) * kRouterLanes;
    float* packed = out.ensure(panels * panel_floats);
    for (int64_t e = 0; e < n_experts; ++e) {
        float* panel = packed + e / kRouterLanes * panel_floats;
        for (int64_t k = 0; k < hidden; ++k) panel[k * kRouterLanes + e % kRouterLanes] = router[e * hidden + k];
    }
}

void choose_row(const MoeConfig& moe, const float* logits, const float* choice_bias, ChoiceScratch& scratch,
                float* out) {
    score_row(moe, logits, choice_bias, scratch);
    scratch.taken.assign(static_cast<size_t>(moe.n_experts), 0);
    if (moe.n_groups > 1) exclude_groups(moe, scratch);
    for (int32_t i = 0; i < moe.n_chosen; ++i) {
        const int32_t chosen = first_of(scratch.choice, scratch.taken, 0, moe.n_experts);
        CHECK_GE(chosen, 0);
        scratch.taken[chosen] = 1;
        out[i] = static_cast<float>(chosen);
    }
    std::sort(out, out + moe.n_chosen);
    float* weights = out + moe.n_chosen;
    for (int32_t i = 0; i < moe.n_chosen; ++i) weights[i] = scratch.scores[static_cast<size_t>(out[i])];
    if (moe.router == RouterKind::kSoftmaxChosen) softmax_row(weights, moe.n_chosen);
    if (moe.normalize) {
        float total = 0.0F;
        for (int32_t i = 0; i < moe.n_chosen; ++i) total += weights[i];
        total += static_cast<float>(moe.sum_epsilon);
        for (int32_t i = 0; i < moe.n_chosen; ++i) weights[i] /= total;
    }
    for (int32_t i = 0; i < moe.n_chosen; ++i) weights[i] *= static_cast<float>(moe.scale);
}

}  // namespace verbatim::cpu
