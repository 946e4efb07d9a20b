// The plain loops of choose for CUDA, per `verbatim kernel list --contract choose`: correct and slow.
#include <cstdint>

#include "kernels/sandbox/cuda_kernel.h"
#include "reference/numerics/math.h"

namespace {

namespace simt = verbatim::simt;
namespace sandbox = verbatim::sandbox;
using verbatim::reference::exp_f32;
using verbatim::reference::max_f32;
using verbatim::reference::sigmoid_f32;

// Whether a at index i ranks before b at index j: the greater value first, then the lower index; NaN last.
SIMT_FUNCTION bool comes_before(float a, int64_t i, float b, int64_t j) {
    if ((a != a) != (b != b)) return b != b;
    return a > b || (!(b > a) && i < j);
}

// A softmax's greatest value and sum.
struct Softmax {
    float greatest, sum;
    SIMT_FUNCTION float of(float value) const { return exp_f32(value - greatest) / sum; }
};

// One thread per row.
struct Choose {
    int32_t router;
    bool normalize;
    int64_t n_experts, n_chosen, n_groups, n_chosen_groups;
    float sum_epsilon, scale;
    sandbox::RowsView<const float> logits;
    simt::Global<const float> choice_bias;
    sandbox::RowsView<float> out;
    simt::Global<float> scores, choice;  // [num_rows, n_experts], scratch
    simt::Global<float> group_scores;    // [num_rows, n_groups], likewise

    SIMT_FUNCTION void operator()() const {
        const int64_t r = sandbox::global_thread();
        if (r >= logits.num_rows) return;
        find_scores(r);
        for (int64_t group = 0; n_groups > 1 && group < n_groups; ++group) find_group_score(r, group);
        int64_t count = 0;
        for (int64_t e = 0; e < n_experts; ++e) {
            if (is_chosen(r, e)) out.data[out.at(r, count++)] = static_cast<float>(e);
        }
        write_weights(r);
    }
    SIMT_FUNCTION void find_scores(int64_t r) const {
        const Softmax all = router == VERBATIM_SOFTMAX_ALL ? softmax(r, n_experts, false) : Softmax{0.0F, 1.0F};
        for (int64_t e = 0; e < n_experts; ++e) {
            const float logit = logits.data[logits.at(r, e)];
            const float score = router == VERBATIM_SOFTMAX_ALL    ? all.of(logit)
                                : router == VERBATIM_SIGMOID_BIAS ? sigmoid_f32(logit)
                                                                  : logit;
            scores[r * n_experts + e] = score;
            choice[r * n_experts + e] = router == VERBATIM_SIGMOID_BIAS ? score + choice_bias[e] : score;
        }
    }
    // The logit of expert i, or of the i-th chosen one.
    SIMT_FUNCTION float logit(int64_t r, int64_t i, bool of_chosen) const {
        const int64_t e = of_chosen ? static_cast<int64_t>(static_cast<float>(out.data[out.at(r, i)])) : i;
        return logits.data[logits.at(r, e)];
    }
    SIMT_FUNCTION Softmax softmax(int64_t r, int64_t count, bool of_chosen) const {
        float greatest = logit(r, 0, of_chosen);
        for (int64_t i = 1; i < count; ++i) greatest = max_f32(greatest, logit(r, i, of_chosen));
        float partial[64];
        for (float& one : partial) one = 0.0F;
        for (int64_t i = 0; i < count; ++i) partial[i % 64] += exp_f32(logit(r, i, of_chosen) - greatest);
        for (int half = 32; half >= 1; half /= 2) {
            for (int j = 0; j < half; ++j) partial[j] += partial[j + half];
        }
        return {greatest, partial[0]};
    }
    SIMT_FUNCTION void find_group_score(int64_t r, int64_t group) const {
        const int64_t size = n_experts / n_groups;
        const int64_t first = r * n_experts + group * size;
        float best[2] = {0.0F, 0.0F};
        for (int64_t i = 0; i < size; ++i) {
            int64_t rank = 0;
            for (int64_t j = 0; j < size; ++j) {
                if (comes_before(choice[first + j], j, choice[first + i], i)) ++rank;
            }
            if (rank < 2) best[rank] = choice[first + i];
        }
        group_scores[r * n_groups + group] = best[0] + best[1];
    }
    SIMT_FUNCTION bool is_open(int64_t r, int64_t e) const {
        if (n_groups == 1) return true;
        const int64_t mine = e / (n_experts / n_groups);
        int64_t rank = 0;
        for (int64_t group = 0; group < n_groups; ++group) {
            const float score = group_scores[r * n_groups + group];
            if (comes_before(score, group, group_scores[r * n_groups + mine], mine)) ++rank;
        }
        return rank < n_chosen_groups;
    }
    SIMT_FUNCTION bool is_chosen(int64_t r, int64_t e) const {
        if (!is_open(r, e)) return false;
        int64_t rank = 0;
        for (int64_t other = 0; other < n_experts; ++other) {
            const bool before = comes_before(choice[r * n_experts + other], other, choice[r * n_experts + e], e);
            if (before && is_open(r, other)) ++rank;
        }
        return rank < n_chosen;
    }
    SIMT_FUNCTION void write_weights(int64_t r) const {
        const bool by_logits = router == VERBATIM_SOFTMAX_CHOSEN;
        const Softmax chosen = by_logits ? softmax(r, n_chosen, true) : Softmax{0.0F, 1.0F};
        const auto weight = [&](int64_t i) {
            const auto e = static_cast<int64_t>(static_cast<float>(out.data[out.at(r, i)]));
            return by_logits ? chosen.of(logit(r, i, true)) : static_cast<float>(scores[r * n_experts + e]);
        };
        float total = 0.0F;
        for (int64_t i = 0; i < n_chosen; ++i) total = total + weight(i);
        total = total + sum_epsilon;
        for (int64_t i = 0; i < n_chosen; ++i) {
            out.data[out.at(r, n_chosen + i)] = (normalize ? weight(i) / total : weight(i)) * scale;
        }
    }
};

int64_t workspace_bytes(const verbatim_kernel*, verbatim_args args, int32_t) {
    const verbatim_choose& op = *args.choose;
    return op.logits.num_rows * (2 * op.n_experts + op.n_groups) * static_cast<int64_t>(sizeof(float));
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_choose& op = *run->args.choose;
    auto* const scores = static_cast<float*>(run->workspace);
    const int64_t count = op.logits.num_rows * op.n_experts;
    const int32_t threads = sandbox::block_threads(*run, 32);
    sandbox::launch(*run, "choose", {sandbox::blocks_for(op.logits.num_rows, threads)}, {threads},
                    Choose{op.router, op.normalize != 0, op.n_experts, op.n_chosen, op.n_groups, op.n_chosen_groups,
                           op.sum_epsilon, op.scale, sandbox::rows_view(*run, op.logits),
                           sandbox::view(*run, op.choice_bias, op.n_experts), sandbox::rows_view(*run, op.out),
                           sandbox::view(*run, scores, count), sandbox::view(*run, scores + count, count),
                           sandbox::view(*run, scores + 2 * count, op.logits.num_rows * op.n_groups)});
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "choose",
    .profile = "exact",
    .machine = "cuda",
    .self = nullptr,
    .supports = nullptr,
    .workspace_bytes = workspace_bytes,
    .packed_bytes = nullptr,
    .pack = nullptr,
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
