// reference/ops behind the structs of kernels/sandbox/kernel.h: sequence by sequence, row by row.
#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/sandbox/builtin_parts.h"
#include "reference/model/model_config.h"
#include "reference/numerics/element_sum.h"
#include "reference/numerics/math.h"
#include "reference/ops/attention.h"
#include "reference/ops/conv1d.h"
#include "reference/ops/delta.h"
#include "reference/ops/elementwise.h"
#include "reference/ops/experts.h"
#include "reference/ops/gated_norm.h"
#include "reference/ops/matmul.h"
#include "reference/ops/rms_norm.h"
#include "reference/ops/router.h"
#include "reference/ops/sampling.h"
#include "reference/ops/ssm_scan.h"

namespace verbatim::sandbox {
namespace {

using reference::dense_rows;
using reference::Profile;

Profile profile_of(const verbatim_kernel* kernel) {
    return std::string_view(kernel->profile) == name(Profile::kExact) ? Profile::kExact : Profile::kTensorSm90;
}

int32_t run_matmul(const verbatim_kernel* kernel, const verbatim_run* run) {
    const verbatim_matmul& op = *run->args.matmul;
    reference::matmul({.x = rows_of(op.x),
                       .weight = op.weight,
                       .bias = op.bias,
                       .in_multiplier = op.in_multiplier,
                       .profile = profile_of(kernel),
                       .out = rows_of(op.out)});
    return 0;
}

int32_t run_rms_norm(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_rms_norm& op = *run->args.rms_norm;
    reference::rms_norm({.x = rows_of(op.x), .weight = op.weight, .eps = op.eps, .out = rows_of(op.out)});
    return 0;
}

int32_t run_gated_norm(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_gated_norm& op = *run->args.gated_norm;
    reference::gated_norm({.gate = static_cast<reference::MambaGate>(op.gate),
                           .n_groups = op.n_groups,
                           .z = rows_of(op.z),
                           .weight = op.weight,
                           .eps = op.eps,
                           .y = rows_of(op.y)});
    return 0;
}

int32_t run_conv(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_conv& op = *run->args.conv;
    const int64_t window = (op.d_conv - 1) * op.x.width;
    for (int64_t s = 0; s < op.sequences.num_sequences; ++s) {
        const Span rows = rows_of_sequence(op.sequences, s);
        reference::conv1d({.d_conv = op.d_conv,
                           .x = rows_of(op.x).rows(rows.first, rows.count),
                           .weight = op.weight,
                           .bias = op.bias,
                           .window_in = op.windows_in != nullptr ? op.windows_in + s * window : nullptr,
                           .window_out = op.windows_out + s * window,
                           .snapshots = {},
                           .out = rows_of(op.out).rows(rows.first, rows.count)});
    }
    return 0;
}

int32_t run_scan(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_scan& op = *run->args.scan;
    const int64_t state = op.n_heads * op.d_state * op.head_dim;
    for (int64_t s = 0; s < op.sequences.num_sequences; ++s) {
        const Span rows = rows_of_sequence(op.sequences, s);
        reference::ssm_scan({.n_heads = op.n_heads,
                             .head_dim = op.head_dim,
                             .d_state = op.d_state,
                             .n_groups = op.n_groups,
                             .x = rows_of(op.x).rows(rows.first, rows.count),
                             .b = rows_of(op.b).rows(rows.first, rows.count),
                             .c = rows_of(op.c).rows(rows.first, rows.count),
                             .dt = rows_of(op.dt).rows(rows.first, rows.count),
                             .a = op.a,
                             .d = op.d,
                             .dt_bias = op.dt_bias,
                             .dt_min = op.dt_min,
                             .dt_max = op.dt_max,
                             .state_in = op.states_in != nullptr ? op.states_in + s * state : nullptr,
                             .state_out = op.states_out + s * state,
                             .snapshots = {},
                             .y = rows_of(op.y).rows(rows.first, rows.count)});
    }
    return 0;
}

// reference/ops/rope.h's formula with the caller's table.
int32_t run_rope(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_rope& op = *run->args.rope;
    for (int64_t r = 0; r < op.x.num_rows; ++r) {
        const float* c = op.cos + op.positions[r] * op.n_pairs;
        const float* s = op.sin + op.positions[r] * op.n_pairs;
        for (int64_t h = 0; h < op.n_heads; ++h) {
            float* x = op.x.data + r * op.x.stride + h * op.head_dim;
            for (int64_t i = 0; i < op.n_pairs; ++i) {
                const float a = x[i];
                const float b = x[i + op.n_pairs];
                x[i] = reference::fma_f32(a, c[i], -(b * s[i]));
                x[i + op.n_pairs] = reference::fma_f32(b, c[i], a * s[i]);
            }
        }
    }
    return 0;
}

// One sequence's K or V, gathered from its blocks: [length, n_kv_heads * head_dim].
std::vector<uint16_t> gathered(const verbatim_attention& op, const uint16_t* pages, int64_t s, int64_t length) {
    const int64_t width = op.n_kv_heads * op.head_dim;
    std::vector<uint16_t> rows(static_cast<size_t>(length * width));
    for (int64_t i = 0; i < length; ++i) {
        const int64_t block = op.block_tables[s * op.max_blocks + i / op.block_size];
        std::copy_n(pages + (block * op.block_size + i % op.block_size) * width, width, &rows[i * width]);
    }
    return rows;
}

int32_t run_attention(const verbatim_kernel* kernel, const verbatim_run* run) {
    const verbatim_attention& op = *run->args.attention;
    const int64_t width = op.n_kv_heads * op.head_dim;
    for (int64_t s = 0; s < op.sequences.num_sequences; ++s) {
        const Span rows = rows_of_sequence(op.sequences, s);
        const int64_t length = op.first_position[s] + rows.count;
        const std::vector<uint16_t> k = gathered(op, op.k, s, length);
        const std::vector<uint16_t> v = gathered(op, op.v, s, length);
        reference::attention({.first_position = op.first_position[s],
                              .n_heads = op.n_heads,
                              .n_kv_heads = op.n_kv_heads,
                              .head_dim = op.head_dim,
                              .scale = op.scale,
                              .profile = profile_of(kernel),
                              .q = rows_of(op.q).rows(rows.first, rows.count),
                              .k = dense_rows(k.data(), length, width),
                              .v = dense_rows(v.data(), length, width),
                              .out = rows_of(op.out).rows(rows.first, rows.count)});
    }
    return 0;
}

int32_t run_activation(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_activation& op = *run->args.activation;
    if (op.kind == VERBATIM_SWIGLU) {
        reference::swiglu({.gate = rows_of(op.gate), .gate_multiplier = op.gate_multiplier, .up = rows_of(op.up)});
    } else {
        reference::relu_squared({.up = rows_of(op.up)});
    }
    return 0;
}

int32_t run_sampling(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_sampling& op = *run->args.sampling;
    for (int64_t r = 0; r < op.logits.num_rows; ++r) op.tokens[r] = reference::sample(sampling_args(op, r));
    return 0;
}

// reference/numerics/element_sum.h, row by row.
int32_t run_head_digest(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_head_digest& op = *run->args.head_digest;
    for (int64_t r = 0; r < op.num_rows; ++r) {
        reference::ElementSum sum;
        for (int64_t i = 0; i < op.width; ++i) {
            const auto* element =
                static_cast<const unsigned char*>(op.elements) + (r * op.stride + i) * op.element_bytes;
            uint32_t bits = 0;
            std::memcpy(&bits, element, static_cast<size_t>(op.element_bytes));
            sum.add((op.first_index != nullptr ? op.first_index[r] : 0) + i, bits);
        }
        op.sums[2 * r] = sum.low;
        op.sums[2 * r + 1] = sum.high;
    }
    return 0;
}

int32_t run_delta_update(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_delta_update& op = *run->args.delta_update;
    const int64_t state = op.n_value_heads * op.key_dim * op.value_dim;
    for (int64_t s = 0; s < op.sequences.num_sequences; ++s) {
        const Span rows = rows_of_sequence(op.sequences, s);
        reference::delta_update({.n_key_heads = op.n_key_heads,
                                 .n_value_heads = op.n_value_heads,
                                 .key_dim = op.key_dim,
                                 .value_dim = op.value_dim,
                                 .q = rows_of(op.q).rows(rows.first, rows.count),
                                 .k = rows_of(op.k).rows(rows.first, rows.count),
                                 .v = rows_of(op.v).rows(rows.first, rows.count),
                                 .beta = rows_of(op.beta).rows(rows.first, rows.count),
                                 .decay = rows_of(op.decay).rows(rows.first, rows.count),
                                 .state_in = op.states_in != nullptr ? op.states_in + s * state : nullptr,
                                 .state_out = op.states_out + s * state,
                                 .snapshots = {},
                                 .y = rows_of(op.y).rows(rows.first, rows.count)});
    }
    return 0;
}

int32_t run_delta_gates(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_delta_gates& op = *run->args.delta_gates;
    reference::delta_gates({.rate = op.rate, .dt_bias = op.dt_bias, .b = rows_of(op.b), .a = rows_of(op.a)});
    return 0;
}

int32_t run_l2_norm(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_l2_norm& op = *run->args.l2_norm;
    reference::l2_norm({.n_heads = op.n_heads, .dim = op.dim, .scale = op.scale, .x = rows_of(op.x)});
    return 0;
}

int32_t run_router(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_router& op = *run->args.router;
    reference::router({.x = rows_of(op.x), .weight = op.weight, .out = rows_of(op.out)});
    return 0;
}

int32_t run_choose(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_choose& op = *run->args.choose;
    const reference::MoeConfig moe = moe_of(op);
    reference::choose(
        {.moe = &moe, .logits = rows_of(op.logits), .choice_bias = op.choice_bias, .out = rows_of(op.out)});
    return 0;
}

int32_t run_experts(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_experts& op = *run->args.experts;
    const int64_t width = op.x.width;
    const auto matrix = [&](const uint16_t* all, int64_t e, int64_t rows, int64_t cols) {
        return all != nullptr ? reference::MatrixView{all + e * rows * cols, rows, cols} : reference::MatrixView{};
    };
    std::vector<reference::MlpWeights> weights(static_cast<size_t>(op.n_experts));
    for (int64_t e = 0; e < op.n_experts; ++e) {
        weights[e].gate = matrix(op.gate, e, op.d_ff, width);
        weights[e].up = matrix(op.up, e, op.d_ff, width);
        weights[e].down = matrix(op.down, e, width, op.d_ff);
    }
    reference::experts({.kind = static_cast<reference::MlpKind>(op.kind),
                        .n_chosen = op.n_chosen,
                        .x = rows_of(op.x),
                        .chosen = rows_of(op.chosen),
                        .weights = weights,
                        .out = rows_of(op.out)});
    return 0;
}

int32_t run_add_routed(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_add_routed& op = *run->args.add_routed;
    reference::add_routed({.routed = rows_of(op.routed), .gate = rows_of(op.gate), .branch = rows_of(op.branch)});
    return 0;
}

constexpr verbatim_kernel reference_of(const char* name, const char* operation, const char* profile,
                                       int32_t (*run)(const verbatim_kernel*, const verbatim_run*)) {
    return {.abi = VERBATIM_KERNEL_ABI,
            .name = name,
            .operation = operation,
            .profile = profile,
            .machine = "cpu",
            .run = run};
}

constexpr verbatim_kernel kReferenceKernels[] = {
    reference_of("reference", "matmul", "exact", run_matmul),
    reference_of("reference", "rms_norm", "exact", run_rms_norm),
    reference_of("reference", "gated_norm", "exact", run_gated_norm),
    reference_of("reference", "conv", "exact", run_conv),
    reference_of("reference", "scan", "exact", run_scan),
    reference_of("reference", "rope", "exact", run_rope),
    reference_of("reference", "attention", "exact", run_attention),
    reference_of("reference", "activation", "exact", run_activation),
    reference_of("reference", "sampling", "exact", run_sampling),
    reference_of("reference", "head_digest", "exact", run_head_digest),
    reference_of("reference", "delta_update", "exact", run_delta_update),
    reference_of("reference", "delta_gates", "exact", run_delta_gates),
    reference_of("reference", "l2_norm", "exact", run_l2_norm),
    reference_of("reference", "router", "exact", run_router),
    reference_of("reference", "choose", "exact", run_choose),
    reference_of("reference", "experts", "exact", run_experts),
    reference_of("reference", "add_routed", "exact", run_add_routed),
    reference_of("reference:tensor", "matmul", "tensor.sm90", run_matmul),
    reference_of("reference:tensor", "attention", "tensor.sm90", run_attention),
};

}  // namespace

void add_reference_kernels(std::vector<const verbatim_kernel*>& kernels) {
    for (const verbatim_kernel& kernel : kReferenceKernels) kernels.push_back(&kernel);
}

}  // namespace verbatim::sandbox
