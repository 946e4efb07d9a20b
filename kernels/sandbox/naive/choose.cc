// The plain loops of choose, as `verbatim kernel list --contract choose` defines it: correct and slow.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/sandbox/kernel.h"
#include "reference/numerics/math.h"

namespace {

using verbatim::reference::exp_f32;
using verbatim::reference::max_f32;
using verbatim::reference::sigmoid_f32;

// Whether a at index i ranks before b at index j: the greater value first, then the lower index; NaN last.
bool comes_before(float a, int64_t i, float b, int64_t j) {
    if ((a != a) != (b != b)) return b != b;
    return a > b || (!(b > a) && i < j);
}
// How many of values [first, end) come before value i.
int64_t rank_of(const float* values, int64_t first, int64_t end, int64_t i) {
    int64_t rank = 0;
    for (int64_t j = first; j < end; ++j) {
        if (comes_before(values[j], j, values[i], i)) ++rank;
    }
    return rank;
}

// In place: exp relative to the maximum, 64 partial sums halved as in rms_norm, one division each.
void softmax(std::vector<float>& values) {
    float greatest = values[0];
    for (const float value : values) greatest = max_f32(greatest, value);
    float partial[64] = {};
    for (size_t i = 0; i < values.size(); ++i) {
        values[i] = exp_f32(values[i] - greatest);
        partial[i % 64] += values[i];
    }
    for (int64_t half = 32; half >= 1; half /= 2) {
        for (int64_t j = 0; j < half; ++j) partial[j] += partial[j + half];
    }
    for (float& value : values) value = value / partial[0];
}

// The sum of a group's two greatest values.
float group_score(const verbatim_choose& op, const std::vector<float>& choice, int64_t group) {
    const int64_t size = op.n_experts / op.n_groups;
    float best[2] = {0.0F, 0.0F};
    for (int64_t e = group * size; e < (group + 1) * size; ++e) {
        const int64_t rank = rank_of(choice.data(), group * size, (group + 1) * size, e);
        if (rank < 2) best[rank] = choice[e];
    }
    return best[0] + best[1];
}
// The experts whose group is chosen.
std::vector<bool> in_play(const verbatim_choose& op, const std::vector<float>& choice) {
    std::vector<bool> open(static_cast<size_t>(op.n_experts), true);
    if (op.n_groups == 1) return open;
    std::vector<float> scores;
    for (int64_t group = 0; group < op.n_groups; ++group) scores.push_back(group_score(op, choice, group));
    for (int64_t e = 0; e < op.n_experts; ++e) {
        open[e] = rank_of(scores.data(), 0, op.n_groups, e / (op.n_experts / op.n_groups)) < op.n_chosen_groups;
    }
    return open;
}
bool is_chosen(const verbatim_choose& op, const std::vector<float>& choice, const std::vector<bool>& open, int64_t e) {
    int64_t rank = 0;
    for (int64_t other = 0; other < op.n_experts; ++other) {
        if (open[other] && comes_before(choice[other], other, choice[e], e)) ++rank;
    }
    return open[e] && rank < op.n_chosen;
}

void choose_row(const verbatim_choose& op, const float* logits, float* out) {
    std::vector<float> scores(logits, logits + op.n_experts);
    if (op.router == VERBATIM_SOFTMAX_ALL) softmax(scores);
    for (float& score : scores) score = op.router == VERBATIM_SIGMOID_BIAS ? sigmoid_f32(score) : score;
    std::vector<float> choice = scores;
    for (int64_t e = 0; op.choice_bias != nullptr && e < op.n_experts; ++e) choice[e] += op.choice_bias[e];
    const std::vector<bool> open = in_play(op, choice);
    std::vector<float> weights;
    for (int64_t e = 0; e < op.n_experts; ++e) {
        if (!is_chosen(op, choice, open, e)) continue;
        out[weights.size()] = static_cast<float>(e);
        weights.push_back(scores[e]);
    }
    if (op.router == VERBATIM_SOFTMAX_CHOSEN) softmax(weights);
    float total = 0.0F;
    for (const float weight : weights) total = total + weight;
    total = total + op.sum_epsilon;
    const bool normalize = op.normalize != 0;
    for (int64_t i = 0; i < op.n_chosen; ++i) {
        out[op.n_chosen + i] = (normalize ? weights[i] / total : weights[i]) * op.scale;
    }
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_choose& op = *run->args.choose;
    for (int64_t r = 0; r < op.logits.num_rows; ++r) {
        choose_row(op, op.logits.data + r * op.logits.stride, op.out.data + r * op.out.stride);
    }
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "choose",
    .profile = "exact",
    .machine = "cpu",
    .self = nullptr,
    .supports = nullptr,
    .workspace_bytes = nullptr,
    .packed_bytes = nullptr,
    .pack = nullptr,
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
