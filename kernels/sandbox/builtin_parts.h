// kernels/sandbox/builtin_parts.h: owns the common part of the files behind kernels/sandbox/builtin_kernels.h:
// conversions from the C structs, and the lists that the files fill.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/sandbox/kernel.h"
#include "reference/model/model_config.h"
#include "reference/ops/rows.h"
#include "reference/ops/sampling.h"

namespace verbatim::sandbox {

inline reference::FloatRows rows_of(const verbatim_floats& rows) {
    return {rows.data, rows.num_rows, rows.width, rows.stride};
}
inline reference::ConstFloatRows rows_of(const verbatim_const_floats& rows) {
    return {rows.data, rows.num_rows, rows.width, rows.stride};
}

// Runs body(i) for i < count as tasks of the run.
template <typename Body>
void for_tasks(const verbatim_run& run, int64_t count, const Body& body) {
    const auto task = [](void* mine, int32_t index) { (*static_cast<const Body*>(mine))(index); };
    run.parallel(&run, static_cast<int32_t>(count), task, const_cast<Body*>(&body));
}

struct Span {
    int64_t first = 0;
    int64_t count = 0;
};
inline Span rows_of_sequence(const verbatim_sequences& sequences, int64_t s) {
    return {sequences.first_row[s], sequences.first_row[s + 1] - sequences.first_row[s]};
}

// The arguments of row r of a draw.
inline reference::SamplingArgs sampling_args(const verbatim_sampling& op, int64_t r) {
    const verbatim_draw& draw = op.draws[r];
    const auto ids = [&](const int32_t* all, int64_t most, const int32_t* count) {
        return std::span(all + r * most, static_cast<size_t>(count[r]));
    };
    return {
        .logits = {op.logits.data + r * op.logits.stride, static_cast<size_t>(op.logits.width)},
        .params = {.temperature = draw.temperature,
                   .top_k = draw.top_k,
                   .top_p = draw.top_p,
                   .repetition_penalty = draw.repetition_penalty,
                   .presence_penalty = draw.presence_penalty,
                   .frequency_penalty = draw.frequency_penalty,
                   .seed = draw.seed},
        .prefix = {ids(op.prompt, op.max_prompt, op.num_prompt), ids(op.generated, op.max_generated, op.num_generated)},
        .position = draw.position};
}

// The fields of a config that a choice reads.
inline reference::MoeConfig moe_of(const verbatim_choose& op) {
    static_assert(static_cast<int>(reference::RouterKind::kSigmoidBias) == VERBATIM_SIGMOID_BIAS &&
                  static_cast<int>(reference::RouterKind::kSoftmaxAll) == VERBATIM_SOFTMAX_ALL &&
                  static_cast<int>(reference::RouterKind::kSoftmaxChosen) == VERBATIM_SOFTMAX_CHOSEN);
    return {.router = static_cast<reference::RouterKind>(op.router),
            .n_experts = static_cast<int32_t>(op.n_experts),
            .n_chosen = static_cast<int32_t>(op.n_chosen),
            .n_groups = static_cast<int32_t>(op.n_groups),
            .n_chosen_groups = static_cast<int32_t>(op.n_chosen_groups),
            .normalize = op.normalize != 0,
            .sum_epsilon = op.sum_epsilon,
            .scale = op.scale};
}

// Each appends its kernels.
void add_reference_kernels(std::vector<const verbatim_kernel*>& kernels);
void add_cpu_kernels(std::vector<const verbatim_kernel*>& kernels);
void add_emulated_kernels(std::vector<const verbatim_kernel*>& kernels);

}  // namespace verbatim::sandbox
