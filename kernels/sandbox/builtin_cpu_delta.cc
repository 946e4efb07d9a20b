// The operations of a gated delta net in kernels/cpu behind the structs of kernels/sandbox/kernel.h.
#include <algorithm>
#include <span>

#include "kernels/sandbox/builtin_cpu.h"
#include "kernels/sandbox/builtin_parts.h"

namespace verbatim::sandbox {
namespace {

// q, k and v of a row side by side, as the conv writes them, followed by beta and decay.
struct DeltaRows {
    explicit DeltaRows(const verbatim_delta_update& op)
        : keys(op.n_key_heads * op.key_dim),
          values(op.n_value_heads * op.value_dim),
          stride(2 * keys + values + 2 * op.n_value_heads) {}
    int64_t keys, values, stride;
};

int64_t delta_workspace(const Kernel*, Args args, int32_t) {
    return args.delta_update->v.num_rows * DeltaRows(*args.delta_update).stride * kFloat;
}

void gather_delta_row(const verbatim_delta_update& op, int64_t r, float* row) {
    for (const verbatim_const_floats* part : {&op.q, &op.k, &op.v, &op.beta, &op.decay}) {
        row = std::copy_n(part->data + r * part->stride, part->width, row);
    }
}

int32_t delta_update_run(const Kernel* kernel, const Run* run) {
    const verbatim_delta_update& op = *run->args.delta_update;
    const DeltaRows layout(op);
    auto* const rows = static_cast<float*>(run->workspace);
    for_tasks(*run, op.v.num_rows, [&](int64_t r) { gather_delta_row(op, r, rows + r * layout.stride); });
    for_tasks(*run, op.sequences.num_sequences * op.n_value_heads, [&](int64_t task) {
        const int64_t head = task % op.n_value_heads;
        const Span span = rows_of_sequence(op.sequences, task / op.n_value_heads);
        const float* q = rows + span.first * layout.stride + head / (op.n_value_heads / op.n_key_heads) * op.key_dim;
        const float* values = rows + span.first * layout.stride + 2 * layout.keys;
        const float* beta = values + layout.values + head;
        const int64_t state = task * op.key_dim * op.value_dim;
        ops_of(kernel).delta({.key_dim = op.key_dim,
                              .value_dim = op.value_dim,
                              .num_tokens = span.count,
                              .q = q,
                              .k = q + layout.keys,
                              .v = values + head * op.value_dim,
                              .stride = layout.stride,
                              .beta = beta,
                              .decay = beta + op.n_value_heads,
                              .gate_stride = layout.stride,
                              .state_in = op.states_in != nullptr ? op.states_in + state : nullptr,
                              .state_out = op.states_out + state,
                              .y = op.y.data + span.first * op.y.stride + head * op.value_dim,
                              .y_stride = op.y.stride});
    });
    return 0;
}

int32_t delta_gates_run(const Kernel* kernel, const Run* run) {
    const verbatim_delta_gates& op = *run->args.delta_gates;
    for_tasks(*run, op.b.num_rows, [&](int64_t r) {
        row_ops_of(kernel).delta_gates({.bias = op.dt_bias,
                                        .rate = op.rate,
                                        .n_heads = op.b.width,
                                        .beta = op.b.data + r * op.b.stride,
                                        .decay = op.a.data + r * op.a.stride});
    });
    return 0;
}

int32_t l2_norm_run(const Kernel* kernel, const Run* run) {
    const verbatim_l2_norm& op = *run->args.l2_norm;
    for_tasks(*run, op.x.num_rows * op.n_heads, [&](int64_t task) {
        float* row = op.x.data + task / op.n_heads * op.x.stride;
        row_ops_of(kernel).l2_norm(op.scale, op.dim, row + task % op.n_heads * op.dim);
    });
    return 0;
}

constexpr Kernel kDeltaTemplates[] = {
    {.operation = "delta_update", .workspace_bytes = delta_workspace, .run = delta_update_run},
    {.operation = "delta_gates", .run = delta_gates_run},
    {.operation = "l2_norm", .run = l2_norm_run},
};

}  // namespace

std::span<const Kernel> cpu_delta_templates() { return kDeltaTemplates; }

}  // namespace verbatim::sandbox
