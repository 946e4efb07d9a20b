// kernels/cpu behind the structs of kernels/sandbox/kernel.h, one kernel for each operation, instruction set and
// profile. Delta nets are in builtin_cpu_delta.cc, experts in builtin_cpu_experts.cc.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/multiply_panel.h"
#include "kernels/cpu/ops/conv1d.h"
#include "kernels/cpu/ops/cpu_ops.h"
#include "kernels/cpu/ops/paged_attention.h"
#include "kernels/cpu/ops/sampling.h"
#include "kernels/cpu/paged_kv.h"
#include "kernels/sandbox/builtin_cpu.h"
#include "kernels/sandbox/builtin_parts.h"
#include "reference/model/state_tensors.h"

namespace verbatim::sandbox {

using cpu::RowForm;

cpu::RoundedRows rounded_rows(const Kernel* kernel, const verbatim_const_floats& x, float multiplier, cpu::RowForm form,
                              float* memory) {
    return cpu::round_rows(row_ops_of(kernel), form, rows_of(x), {multiplier}, memory, reinterpret_cast<Pair*>(memory));
}

namespace {

using cpu::MatmulLoop;

// --- matmul: panels of 64 outputs

int64_t padded_rows(int64_t num_rows) { return (num_rows / cpu::kMaxBandRows + 1) * cpu::kMaxBandRows; }
int64_t num_panels(int64_t num_outputs) { return (num_outputs + kPanelOutputs - 1) / kPanelOutputs; }

int64_t matmul_packed_bytes(const Kernel*, Args args) {
    return PackedMatrix::num_pairs_of(args.matmul->out.width, args.matmul->x.width) * int64_t{sizeof(Pair)};
}

void matmul_pack(const Kernel*, Args args, void* packed) {
    const verbatim_matmul& op = *args.matmul;
    const int64_t panel_pairs = num_pairs(op.x.width) * kPanelOutputs;
    for (int64_t i = 0; i < num_panels(op.out.width); ++i) {
        pack_panel({op.weight, op.out.width, op.x.width}, i, static_cast<Pair*>(packed) + i * panel_pairs);
    }
}

// Rounded rows, then a tile for the last panel.
int64_t matmul_workspace(const Kernel*, Args args, int32_t) {
    const verbatim_matmul& op = *args.matmul;
    return padded_rows(op.x.num_rows) * (2 * num_pairs(op.x.width) + kPanelOutputs) * kFloat;
}

int32_t matmul_run(const Kernel* kernel, const Run* run) {
    const verbatim_matmul& op = *run->args.matmul;
    const MatmulLoop loop = loop_of(kernel, op.x.num_rows);
    auto* const memory = static_cast<float*>(run->workspace);
    const cpu::RoundedRows rows = rounded_rows(kernel, op.x, op.in_multiplier, loop.form(), memory);
    float* const tile = memory + padded_rows(op.x.num_rows) * 2 * rows.num_pairs;
    for_tasks(*run, num_panels(op.out.width), [&](int64_t i) {
        const int64_t first = i * kPanelOutputs;
        const int64_t count = std::min(kPanelOutputs, op.out.width - first);
        const auto* panel = static_cast<const Pair*>(run->packed) + i * rows.num_pairs * kPanelOutputs;
        if (count == kPanelOutputs) {
            return loop.run({.rows = rows,
                             .panel = panel,
                             .bias = op.bias != nullptr ? op.bias + first : nullptr,
                             .out = op.out.data + first,
                             .out_stride = op.out.stride});
        }
        loop.run({.rows = rows, .panel = panel, .out = tile});
        for (int64_t r = 0; r < op.out.num_rows; ++r) {
            for (int64_t n = 0; n < count; ++n) {
                const float total = tile[r * kPanelOutputs + n];
                op.out.data[r * op.out.stride + first + n] = op.bias != nullptr ? total + op.bias[first + n] : total;
            }
        }
    });
    return 0;
}

// --- rows

int32_t rms_norm_run(const Kernel* kernel, const Run* run) {
    const verbatim_rms_norm& op = *run->args.rms_norm;
    for_tasks(*run, op.x.num_rows, [&](int64_t r) {
        row_ops_of(kernel).rms_norm(op.x.data + r * op.x.stride, op.weight, op.eps, op.x.width,
                                    op.out.data + r * op.out.stride);
    });
    return 0;
}

int32_t gated_norm_run(const Kernel* kernel, const Run* run) {
    const verbatim_gated_norm& op = *run->args.gated_norm;
    const cpu::RowOps& ops = row_ops_of(kernel);
    const int64_t width = op.y.width / op.n_groups;
    for_tasks(*run, op.y.num_rows, [&](int64_t r) {
        float* y = op.y.data + r * op.y.stride;
        const float* z = op.z.data + r * op.z.stride;
        if (op.gate != VERBATIM_NORM_THEN_GATE) ops.silu_gate(z, op.y.width, y);
        for (int64_t g = 0; op.gate != VERBATIM_GATE_ONLY && g < op.n_groups; ++g) {
            ops.rms_norm(y + g * width, op.weight + g * width, op.eps, width, y + g * width);
        }
        if (op.gate == VERBATIM_NORM_THEN_GATE) ops.silu_gate(z, op.y.width, y);
    });
    return 0;
}

int32_t rope_run(const Kernel* kernel, const Run* run) {
    const verbatim_rope& op = *run->args.rope;
    for_tasks(*run, op.x.num_rows, [&](int64_t r) {
        const int64_t at = op.positions[r] * op.n_pairs;
        for (int64_t h = 0; h < op.n_heads; ++h) {
            row_ops_of(kernel).rope(op.cos + at, op.sin + at, op.n_pairs,
                                    op.x.data + r * op.x.stride + h * op.head_dim);
        }
    });
    return 0;
}

int32_t activation_run(const Kernel* kernel, const Run* run) {
    const verbatim_activation& op = *run->args.activation;
    for_tasks(*run, op.up.num_rows, [&](int64_t r) {
        float* up = op.up.data + r * op.up.stride;
        op.kind == VERBATIM_SWIGLU
            ? row_ops_of(kernel).swiglu(op.gate.data + r * op.gate.stride, op.gate_multiplier, op.up.width, up)
            : row_ops_of(kernel).relu_squared(op.up.width, up);
    });
    return 0;
}

int32_t sampling_run(const Kernel* kernel, const Run* run) {
    const verbatim_sampling& op = *run->args.sampling;
    for_tasks(*run, op.logits.num_rows, [&](int64_t r) {
        static thread_local cpu::SamplingScratch scratch;
        op.tokens[r] = cpu::sample(sampling_args(op, r), row_ops_of(kernel), scratch);
    });
    return 0;
}

// --- conv: weights as taps first, then zeros for null inputs

int64_t conv_packed_bytes(const Kernel*, Args args) { return (args.conv->d_conv + 1) * args.conv->x.width * kFloat; }

void conv_pack(const Kernel*, Args args, void* packed) {
    const verbatim_conv& op = *args.conv;
    const std::vector<float> taps = cpu::taps_first(op.weight, op.x.width, op.d_conv);
    std::ranges::copy(taps, static_cast<float*>(packed));
    std::fill_n(static_cast<float*>(packed) + taps.size(), op.x.width, 0.0F);
}

int32_t conv_run(const Kernel* kernel, const Run* run) {
    constexpr int64_t kChannels = 256;
    const verbatim_conv& op = *run->args.conv;
    const int64_t window = (op.d_conv - 1) * op.x.width;
    const int64_t parts = (op.x.width + kChannels - 1) / kChannels;
    const auto* taps = static_cast<const float*>(run->packed);
    for_tasks(*run, op.sequences.num_sequences * parts, [&](int64_t task) {
        const int64_t s = task / parts;
        const int64_t begin = task % parts * kChannels;
        const Span rows = rows_of_sequence(op.sequences, s);
        cpu::conv1d_channels(row_ops_of(kernel),
                             {.d_conv = op.d_conv,
                              .x = rows_of(op.x).rows(rows.first, rows.count),
                              .weight = taps,
                              .bias = op.bias,
                              .window_in = op.windows_in != nullptr ? op.windows_in + s * window : nullptr,
                              .window_out = op.windows_out + s * window,
                              .snapshots = {},
                              .out = rows_of(op.out).rows(rows.first, rows.count)},
                             taps + op.d_conv * op.x.width, begin, std::min(begin + kChannels, op.x.width));
    });
    return 0;
}

// --- scan: x, B and C of a row side by side, as the conv writes them, and the row's time steps

struct ScanRows {
    explicit ScanRows(const verbatim_scan& op)
        : heads_width(op.n_heads * op.head_dim),
          groups_width(op.n_groups * op.d_state),
          stride(heads_width + 2 * groups_width) {}
    int64_t heads_width, groups_width, stride;
};

int64_t scan_workspace(const Kernel*, Args args, int32_t) {
    const verbatim_scan& op = *args.scan;
    return op.x.num_rows * (ScanRows(op).stride + 2 * op.n_heads) * kFloat;
}

void gather_scan_row(const Kernel* kernel, const verbatim_scan& op, int64_t r, float* row, float* steps) {
    const ScanRows layout(op);
    std::copy_n(op.x.data + r * op.x.stride, layout.heads_width, row);
    std::copy_n(op.b.data + r * op.b.stride, layout.groups_width, row + layout.heads_width);
    std::copy_n(op.c.data + r * op.c.stride, layout.groups_width, row + layout.heads_width + layout.groups_width);
    row_ops_of(kernel).time_steps({.raw = op.dt.data + r * op.dt.stride,
                                   .bias = op.dt_bias,
                                   .a = op.a,
                                   .dt_min = op.dt_min,
                                   .dt_max = op.dt_max,
                                   .n_heads = op.n_heads,
                                   .dt = steps,
                                   .decay = steps + op.n_heads});
}

int32_t scan_run(const Kernel* kernel, const Run* run) {
    const verbatim_scan& op = *run->args.scan;
    const ScanRows layout(op);
    auto* const rows = static_cast<float*>(run->workspace);
    float* const steps = rows + op.x.num_rows * layout.stride;
    for_tasks(*run, op.x.num_rows,
              [&](int64_t r) { gather_scan_row(kernel, op, r, rows + r * layout.stride, steps + r * 2 * op.n_heads); });
    for_tasks(*run, op.sequences.num_sequences * op.n_heads, [&](int64_t task) {
        const int64_t head = task % op.n_heads;
        const Span span = rows_of_sequence(op.sequences, task / op.n_heads);
        const float* row = rows + span.first * layout.stride;
        const float* b = row + layout.heads_width + head / (op.n_heads / op.n_groups) * op.d_state;
        const float* dt = steps + span.first * 2 * op.n_heads + head;
        const int64_t state = task * op.d_state * op.head_dim;
        ops_of(kernel).scan({.head_dim = op.head_dim,
                             .d_state = op.d_state,
                             .num_tokens = span.count,
                             .dt = dt,
                             .decay = dt + op.n_heads,
                             .dt_stride = 2 * op.n_heads,
                             .d = op.d[head],
                             .x = row + head * op.head_dim,
                             .b = b,
                             .c = b + layout.groups_width,
                             .stride = layout.stride,
                             .state_in = op.states_in != nullptr ? op.states_in + state : nullptr,
                             .state_out = op.states_out + state,
                             .y = op.y.data + span.first * op.y.stride + head * op.head_dim,
                             .y_stride = op.y.stride});
    });
    return 0;
}

// --- attention: the caller's pages in the layout of kernels/cpu/paged_kv.h

std::unique_ptr<cpu::PagedKv> paged_kv_of(const verbatim_attention& op) {
    const auto tensor = [&](reference::StateKind kind) {
        return reference::StateTensor{
            0, kind, reference::StatePer::kToken, reference::StateDtype::kBf16, {op.n_kv_heads, op.head_dim}};
    };
    auto kv = std::make_unique<cpu::PagedKv>(
        reference::StateTensors({tensor(reference::StateKind::kK), tensor(reference::StateKind::kV)}),
        static_cast<int32_t>(op.block_size), static_cast<int32_t>(op.num_blocks));
    std::vector<float> k(static_cast<size_t>(op.head_dim)), v(k.size());
    for (int64_t slot = 0; slot < op.num_blocks * op.block_size; ++slot) {
        for (int64_t head = 0; head < op.n_kv_heads; ++head) {
            const int64_t at = (slot * op.n_kv_heads + head) * op.head_dim;
            for (int64_t i = 0; i < op.head_dim; ++i) {
                k[i] = reference::float_from_bits(uint32_t{op.k[at + i]} << 16);
                v[i] = reference::float_from_bits(uint32_t{op.v[at + i]} << 16);
            }
            kv->store(0, BlockId{static_cast<int32_t>(slot / op.block_size)},
                      static_cast<int32_t>(slot % op.block_size), head, k.data(), v.data());
        }
    }
    return kv;
}

// Packed pages, by the address of the packed buffer, which holds nothing itself.
std::map<const void*, std::unique_ptr<cpu::PagedKv>>& packed_pages() {
    static std::map<const void*, std::unique_ptr<cpu::PagedKv>> pages;
    return pages;
}

int64_t attention_packed_bytes(const Kernel*, Args) { return 1; }
void attention_pack(const Kernel*, Args args, void* packed) { packed_pages()[packed] = paged_kv_of(*args.attention); }

int32_t attention_run(const Kernel* kernel, const Run* run) {
    constexpr int64_t kRows = 16;  // query rows per task
    const verbatim_attention& op = *run->args.attention;
    const cpu::PagedKv& kv = *packed_pages().at(run->packed);
    int64_t most_rows = 0;
    for (int64_t s = 0; s < op.sequences.num_sequences; ++s) {
        most_rows = std::max(most_rows, rows_of_sequence(op.sequences, s).count);
    }
    const int64_t parts = (most_rows + kRows - 1) / kRows;
    for_tasks(*run, op.sequences.num_sequences * parts * op.n_kv_heads, [&](int64_t task) {
        static thread_local cpu::AttentionScratch scratch;
        const int64_t s = task / op.n_kv_heads / parts;
        const Span rows = rows_of_sequence(op.sequences, s);
        const int64_t begin = task / op.n_kv_heads % parts * kRows;
        if (begin >= rows.count) return;
        const auto* blocks = reinterpret_cast<const BlockId*>(op.block_tables + s * op.max_blocks);
        const cpu::PagedAttentionArgs args{.layer = 0,
                                           .first_position = op.first_position[s],
                                           .n_heads = op.n_heads,
                                           .n_kv_heads = op.n_kv_heads,
                                           .head_dim = op.head_dim,
                                           .scale = op.scale,
                                           .kv = &kv,
                                           .blocks = {blocks, static_cast<size_t>(op.max_blocks)},
                                           .q = rows_of(op.q).rows(rows.first, rows.count),
                                           .out = rows_of(op.out).rows(rows.first, rows.count)};
        scratch.reserve(args, kRows);
        paged_attention(ops_of(kernel), args, task % op.n_kv_heads, {begin, std::min(begin + kRows, rows.count)},
                        scratch);
    });
    return 0;
}

// --- the list

constexpr Kernel kCpuTemplates[] = {
    {.operation = "matmul",
     .workspace_bytes = matmul_workspace,
     .packed_bytes = matmul_packed_bytes,
     .pack = matmul_pack,
     .run = matmul_run},
    {.operation = "rms_norm", .run = rms_norm_run},
    {.operation = "gated_norm", .run = gated_norm_run},
    {.operation = "conv", .packed_bytes = conv_packed_bytes, .pack = conv_pack, .run = conv_run},
    {.operation = "scan", .workspace_bytes = scan_workspace, .run = scan_run},
    {.operation = "rope", .run = rope_run},
    {.operation = "attention", .packed_bytes = attention_packed_bytes, .pack = attention_pack, .run = attention_run},
    {.operation = "activation", .run = activation_run},
    {.operation = "sampling", .run = sampling_run},
};

// Kernels with the strings and tables that they point to, at stable addresses.
struct Owned {
    std::deque<std::string> names;
    std::deque<CpuTable> tables;
    std::deque<Kernel> kernels;

    const Kernel* add(const Kernel& made_of, const char* profile, std::string name, const CpuTable& table) {
        Kernel kernel = made_of;
        kernel.abi = VERBATIM_KERNEL_ABI;
        kernel.name = names.emplace_back(std::move(name)).c_str();
        kernel.profile = profile;
        kernel.machine = "cpu";
        kernel.self = &tables.emplace_back(table);
        return &kernels.emplace_back(kernel);
    }
};

}  // namespace

void add_cpu_kernels(std::vector<const verbatim_kernel*>& kernels) {
    static Owned owned;
    std::vector<Kernel> templates(std::begin(kCpuTemplates), std::end(kCpuTemplates));
    for (const std::span<const Kernel> more : {cpu_delta_templates(), cpu_expert_templates()}) {
        templates.insert(templates.end(), more.begin(), more.end());
    }
    for (const Kernel& made_of : templates) {
        const std::string_view operation = made_of.operation;
        for (const cpu::Isa isa : cpu::supported_isas()) {
            // It has no loops that an instruction set could speed up
            if (operation == "choose" && isa != cpu::Isa::kPortable) continue;
            const std::string name = fmt::format("cpu.{}", cpu::isa_name(isa));
            kernels.push_back(owned.add(made_of, "exact", name, {isa, Profile::kExact}));
            if (isa != cpu::Isa::kPortable && operation != "sampling") {
                kernels.push_back(owned.add(made_of, "fast", name + ":fast", {isa, Profile::kFast}));
            }
        }
        if (operation == "matmul" || operation == "attention") {
            kernels.push_back(
                owned.add(made_of, "tensor.sm90", "cpu.portable:tensor", {cpu::Isa::kPortable, Profile::kTensorSm90}));
        }
    }
}

}  // namespace verbatim::sandbox
