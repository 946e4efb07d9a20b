// The operations of a mixture of experts in kernels/cpu behind the structs of kernels/sandbox/kernel.h.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "kernels/cpu/multiply_panel.h"
#include "kernels/cpu/ops/router.h"
#include "kernels/packed_matrix.h"
#include "kernels/sandbox/builtin_cpu.h"
#include "kernels/sandbox/builtin_parts.h"
#include "reference/numerics/math.h"

namespace verbatim::sandbox {
namespace {

// --- router: panels of 64 experts

int64_t router_panels(const verbatim_router& op) { return (op.out.width + cpu::kRouterLanes - 1) / cpu::kRouterLanes; }
int64_t router_packed_bytes(const Kernel*, Args args) {
    return router_panels(*args.router) * 2 * num_pairs(args.router->x.width) * cpu::kRouterLanes * kFloat;
}
void router_pack(const Kernel* kernel, Args args, void* packed) {
    const verbatim_router& op = *args.router;
    const int64_t panel = 2 * num_pairs(op.x.width) * cpu::kRouterLanes;
    auto* const out = static_cast<float*>(packed);
    std::fill_n(out, router_packed_bytes(kernel, args) / kFloat, 0.0F);
    for (int64_t e = 0; e < op.out.width; ++e) {
        float* lane = out + e / cpu::kRouterLanes * panel + e % cpu::kRouterLanes;
        for (int64_t k = 0; k < op.x.width; ++k) lane[k * cpu::kRouterLanes] = op.weight[e * op.x.width + k];
    }
}
int64_t router_workspace(const Kernel*, Args args, int32_t) {
    return args.router->x.num_rows * 2 * num_pairs(args.router->x.width) * kFloat;
}
int32_t router_run(const Kernel* kernel, const Run* run) {
    const verbatim_router& op = *run->args.router;
    const int64_t padded = 2 * num_pairs(op.x.width);
    const int64_t panels = router_panels(op);
    auto* const rounded = static_cast<float*>(run->workspace);
    for_tasks(*run, op.x.num_rows, [&](int64_t r) {
        row_ops_of(kernel).round_to_floats(op.x.data + r * op.x.stride, op.x.width, 1.0F, rounded + r * padded);
    });
    for_tasks(*run, op.x.num_rows * panels, [&](int64_t task) {
        const int64_t first = task % panels * cpu::kRouterLanes;
        const int64_t row = task / panels;
        alignas(64) float logits[cpu::kRouterLanes];
        row_ops_of(kernel).route({.x = rounded + row * padded,
                                  .weight = static_cast<const float*>(run->packed) + first * padded,
                                  .num_k = padded,
                                  .out = logits});
        std::copy_n(logits, std::min(cpu::kRouterLanes, op.out.width - first),
                    op.out.data + row * op.out.stride + first);
    });
    return 0;
}

int32_t choose_run(const Kernel*, const Run* run) {
    const verbatim_choose& op = *run->args.choose;
    const reference::MoeConfig moe = moe_of(op);
    for_tasks(*run, op.logits.num_rows, [&](int64_t r) {
        static thread_local cpu::ChoiceScratch scratch;
        cpu::choose_row(moe, op.logits.data + r * op.logits.stride, op.choice_bias, scratch,
                        op.out.data + r * op.out.stride);
    });
    return 0;
}

// --- experts: entries, sorted by expert, as in kernels/cpu/cpu_experts.cc

struct ExpertLayout {
    explicit ExpertLayout(const verbatim_experts& op)
        : num_entries(op.x.num_rows * op.n_chosen),
          in_pairs(PackedMatrix::num_pairs_of(op.d_ff, op.x.width)),
          down_pairs(PackedMatrix::num_pairs_of(op.x.width, op.d_ff)),
          expert_pairs((op.gate != nullptr ? 2 : 1) * in_pairs + down_pairs),
          // A part is up to kMatmulRows entries of an expert; its last band may be wider than the part.
          most_parts(std::min(num_entries, op.n_experts + num_entries / cpu::kMatmulRows)),
          most_rows(num_entries + most_parts * cpu::kMaxBandRows),
          widest(2 * std::max(num_pairs(op.x.width), num_pairs(op.d_ff))) {}
    int64_t num_entries, in_pairs, down_pairs, expert_pairs, most_parts, most_rows, widest;
};

// Workspace of all entries: their inputs, then results, followed by the rounded rows.
struct ExpertMemory {
    ExpertMemory(const verbatim_experts& op, const ExpertLayout& layout, void* workspace)
        : x(static_cast<float*>(workspace)),
          gate(x + layout.num_entries * op.x.width),
          up(gate + layout.num_entries * op.d_ff),
          rounded(up + layout.num_entries * op.d_ff) {}
    float *x, *gate, *up, *rounded;
};

int64_t experts_workspace(const Kernel*, Args args, int32_t) {
    const verbatim_experts& op = *args.experts;
    const ExpertLayout layout(op);
    return (layout.num_entries * (op.x.width + 2 * op.d_ff) + layout.most_rows * layout.widest) * kFloat;
}
int64_t experts_packed_bytes(const Kernel*, Args args) {
    return args.experts->n_experts * ExpertLayout(*args.experts).expert_pairs * int64_t{sizeof(Pair)};
}

void pack_matrix(const uint16_t* weight, int64_t rows, int64_t cols, Pair* out) {
    const int64_t panel_pairs = num_pairs(cols) * kPanelOutputs;
    for (int64_t i = 0; i * kPanelOutputs < rows; ++i) pack_panel({weight, rows, cols}, i, out + i * panel_pairs);
}
void experts_pack(const Kernel*, Args args, void* packed) {
    const verbatim_experts& op = *args.experts;
    const ExpertLayout layout(op);
    const int64_t matrix = op.d_ff * op.x.width;
    for (int64_t e = 0; e < op.n_experts; ++e) {
        Pair* out = static_cast<Pair*>(packed) + e * layout.expert_pairs;
        pack_matrix(op.up + e * matrix, op.d_ff, op.x.width, out);
        pack_matrix(op.down + e * matrix, op.x.width, op.d_ff, out + layout.in_pairs);
        if (op.gate == nullptr) continue;
        pack_matrix(op.gate + e * matrix, op.d_ff, op.x.width, out + layout.in_pairs + layout.down_pairs);
    }
}

struct ExpertPart {
    int64_t expert = 0;
    int64_t first_entry = 0;
    int64_t num_rows = 0;
    int64_t first_rounded = 0;  // row
};
struct ExpertEntries {
    std::vector<ExpertPart> parts;
    std::vector<int64_t> row_of_entry;
    std::vector<int64_t> entry_of_slot;  // [num_rows, n_chosen]
};
ExpertEntries entries_of(const verbatim_experts& op) {
    ExpertEntries entries;
    entries.entry_of_slot.resize(static_cast<size_t>(op.x.num_rows * op.n_chosen));
    int64_t rounded = 0;
    for (int64_t e = 0; e < op.n_experts; ++e) {
        const auto first = std::ssize(entries.row_of_entry);
        for (int64_t slot = 0; slot < std::ssize(entries.entry_of_slot); ++slot) {
            const int64_t row = slot / op.n_chosen;
            if (static_cast<int64_t>(op.chosen.data[row * op.chosen.stride + slot % op.n_chosen]) != e) continue;
            entries.entry_of_slot[slot] = std::ssize(entries.row_of_entry);
            entries.row_of_entry.push_back(row);
        }
        for (int64_t at = first; at < std::ssize(entries.row_of_entry); at += cpu::kMatmulRows) {
            const int64_t count = std::min(cpu::kMatmulRows, std::ssize(entries.row_of_entry) - at);
            entries.parts.push_back({e, at, count, rounded});
            rounded += count + cpu::kMaxBandRows;
        }
    }
    return entries;
}

// Multiplies a part's rows by one matrix.
void multiply_part(const Kernel* kernel, const verbatim_const_floats& x, const PackedMatrix& matrix, float* memory,
                   float* out) {
    const cpu::MatmulLoop loop = loop_of(kernel, x.num_rows);
    const cpu::RoundedRows rows = rounded_rows(kernel, x, 1.0F, cpu::row_form(loop, matrix, x.num_rows), memory);
    for (int64_t panel = 0; panel < matrix.num_panels(); ++panel) {
        cpu::multiply_panel(loop, matrix, nullptr, rows, panel, nullptr,
                            reference::dense_rows(out, x.num_rows, matrix.num_outputs()));
    }
}

void run_part(const Kernel* kernel, const Run* run, const ExpertPart& part, const ExpertEntries& entries) {
    const verbatim_experts& op = *run->args.experts;
    const ExpertLayout layout(op);
    const ExpertMemory memory(op, layout, run->workspace);
    const int64_t width = op.x.width;
    const auto* pairs = static_cast<const Pair*>(run->packed) + part.expert * layout.expert_pairs;
    const PackedMatrix up(op.d_ff, width, pairs);
    const PackedMatrix down(width, op.d_ff, pairs + layout.in_pairs);
    float* const rounded = memory.rounded + part.first_rounded * layout.widest;
    float* const x = memory.x + part.first_entry * width;
    float* const gates = memory.gate + part.first_entry * op.d_ff;
    float* const inner = memory.up + part.first_entry * op.d_ff;
    for (int64_t i = 0; i < part.num_rows; ++i) {
        std::copy_n(op.x.data + entries.row_of_entry[part.first_entry + i] * op.x.stride, width, x + i * width);
    }
    const verbatim_const_floats gathered{x, part.num_rows, width, width};
    multiply_part(kernel, gathered, up, rounded, inner);
    if (op.kind == VERBATIM_SWIGLU) {
        const PackedMatrix gate(op.d_ff, width, pairs + layout.in_pairs + layout.down_pairs);
        multiply_part(kernel, gathered, gate, rounded, gates);
        row_ops_of(kernel).swiglu(gates, 1.0F, part.num_rows * op.d_ff, inner);
    } else {
        row_ops_of(kernel).relu_squared(part.num_rows * op.d_ff, inner);
    }
    multiply_part(kernel, {inner, part.num_rows, op.d_ff, op.d_ff}, down, rounded, x);
}

int32_t experts_run(const Kernel* kernel, const Run* run) {
    const verbatim_experts& op = *run->args.experts;
    const ExpertEntries entries = entries_of(op);
    const ExpertMemory memory(op, ExpertLayout(op), run->workspace);
    for_tasks(*run, std::ssize(entries.parts), [&](int64_t i) { run_part(kernel, run, entries.parts[i], entries); });
    for_tasks(*run, op.out.num_rows, [&](int64_t r) {
        float* acc = op.out.data + r * op.out.stride;
        const float* weights = op.chosen.data + r * op.chosen.stride + op.n_chosen;
        std::fill_n(acc, op.out.width, 0.0F);
        for (int64_t i = 0; i < op.n_chosen; ++i) {
            const float* y = memory.x + entries.entry_of_slot[r * op.n_chosen + i] * op.out.width;
            row_ops_of(kernel).add_branch(y, 1.0F, weights[i], op.out.width, acc);
        }
    });
    return 0;
}

// --- add_routed

int64_t add_routed_workspace(const Kernel*, Args args, int32_t) {
    return args.add_routed->branch.num_rows * args.add_routed->branch.width * kFloat;
}
int32_t add_routed_run(const Kernel* kernel, const Run* run) {
    const verbatim_add_routed& op = *run->args.add_routed;
    for_tasks(*run, op.branch.num_rows, [&](int64_t r) {
        float* sum = static_cast<float*>(run->workspace) + r * op.branch.width;
        float* branch = op.branch.data + r * op.branch.stride;
        const float open = op.gate.data != nullptr ? reference::sigmoid_f32(op.gate.data[r * op.gate.stride]) : 1.0F;
        std::copy_n(op.routed.data + r * op.routed.stride, op.branch.width, sum);
        row_ops_of(kernel).add_branch(branch, 1.0F, open, op.branch.width, sum);
        std::copy_n(sum, op.branch.width, branch);
    });
    return 0;
}

constexpr Kernel kExpertTemplates[] = {
    {.operation = "router",
     .workspace_bytes = router_workspace,
     .packed_bytes = router_packed_bytes,
     .pack = router_pack,
     .run = router_run},
    {.operation = "choose", .run = choose_run},
    {.operation = "experts",
     .workspace_bytes = experts_workspace,
     .packed_bytes = experts_packed_bytes,
     .pack = experts_pack,
     .run = experts_run},
    {.operation = "add_routed", .workspace_bytes = add_routed_workspace, .run = add_routed_run},
};

}  // namespace

std::span<const Kernel> cpu_expert_templates() { return kExpertTemplates; }

}  // namespace verbatim::sandbox
