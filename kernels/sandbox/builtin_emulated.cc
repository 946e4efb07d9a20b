// kernels/cuda behind the structs of kernels/sandbox/kernel.h, on the emulator in Run::device. The arguments are in the
// emulator's memory, which the host can read.
#include <algorithm>
#include <map>
#include <span>
#include <vector>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device_array.h"
#include "kernels/cuda/fragments.h"
#include "kernels/cuda/state_log.h"
#include "kernels/cuda/step_lists.h"
#include "kernels/pair.h"
#include "kernels/sandbox/builtin_parts.h"
#include "kernels/sandbox/emulated_parts.h"
#include "reference/worker_pool.h"

namespace verbatim::sandbox {
namespace {

using cuda::Device;
using cuda::DeviceArray;
using cuda::Floats;
using reference::Profile;
using Kernel = verbatim_kernel;
using Args = verbatim_args;
using Run = verbatim_run;

int32_t emulate_matmul(const Kernel* kernel, const Run* run) {
    const verbatim_matmul& op = *run->args.matmul;
    const bool exact = kernel->profile == name(Profile::kExact);
    return on_emulator(run, [&](Device& device) {
        reference::WorkerPool threads(1);
        const reference::MatrixView weight{op.weight, op.out.width, op.x.width};
        const auto words =
            on_device(device, exact ? cuda::pack_pairs(weight, threads) : cuda::pack_fragments(weight, threads));
        const auto pairs = room_for_pairs(device, op.x.num_rows, op.x.width);
        device.round_rows(floats_of(op.x), op.in_multiplier, pairs.data());
        const cuda::DeviceMatrix matrix{words.data(), op.bias, op.out.width, op.x.width};
        exact ? device.matmul(pairs.data(), matrix, floats_of(op.out))
              : device.tensor_matmul(Profile::kTensorSm90, pairs.data(), matrix, floats_of(op.out));
    });
}

int32_t emulate_rms_norm(const Kernel*, const Run* run) {
    const verbatim_rms_norm& op = *run->args.rms_norm;
    return on_emulator(run, [&](Device& device) {
        const auto pairs = room_for_pairs(device, op.x.num_rows, op.x.width);
        device.rms_norm(floats_of(op.x), nullptr, op.weight, op.eps, floats_of(op.out), pairs.data());
    });
}

int32_t emulate_gated_norm(const Kernel*, const Run* run) {
    const verbatim_gated_norm& op = *run->args.gated_norm;
    return on_emulator(run, [&](Device& device) {
        const auto pairs = room_for_pairs(device, op.y.num_rows, op.y.width);
        device.gated_norm(static_cast<cuda::GateKind>(op.gate), op.n_groups, floats_of(op.z), op.weight, op.eps,
                          floats_of(op.y), pairs.data());
    });
}

int32_t emulate_rope(const Kernel*, const Run* run) {
    const verbatim_rope& op = *run->args.rope;
    return on_emulator(run, [&](Device& device) {
        const auto positions = on_device(device, std::vector<int32_t>(op.positions, op.positions + op.x.num_rows));
        device.rope({.positions = positions.data(), .num_rows = op.x.num_rows}, op.n_heads, op.head_dim, op.cos, op.sin,
                    op.num_positions, op.n_pairs, floats_of(op.x));
    });
}

int32_t emulate_activation(const Kernel*, const Run* run) {
    const verbatim_activation& op = *run->args.activation;
    return on_emulator(run, [&](Device& device) {
        const auto pairs = room_for_pairs(device, op.up.num_rows, op.up.width);
        op.kind == VERBATIM_SWIGLU
            ? device.swiglu(floats_of(op.gate), op.gate_multiplier, floats_of(op.up), pairs.data())
            : device.relu_squared(floats_of(op.up), pairs.data());
    });
}

// --- sequences with a state

int32_t emulate_conv(const Kernel*, const Run* run) {
    const verbatim_conv& op = *run->args.conv;
    return on_emulator(run, [&](Device& device) {
        const StatefulStep step(device, op.sequences, op.windows_in, (op.d_conv - 1) * op.x.width);
        device.conv(step.batch(), {.d_conv = op.d_conv}, {.conv_weight = op.weight, .conv_bias = op.bias},
                    floats_of(op.x), step.states(), cuda::DeviceLog{}, floats_of(op.out));
        step.leave(op.windows_out);
    });
}

// x, B and C of a row side by side, as the conv writes them.
std::vector<float> gathered_scan_rows(const verbatim_scan& op) {
    std::vector<float> rows;
    for (int64_t r = 0; r < op.x.num_rows; ++r) {
        for (const verbatim_const_floats* part : {&op.x, &op.b, &op.c}) {
            rows.insert(rows.end(), part->data + r * part->stride, part->data + r * part->stride + part->width);
        }
    }
    return rows;
}

int32_t emulate_scan(const Kernel*, const Run* run) {
    const verbatim_scan& op = *run->args.scan;
    return on_emulator(run, [&](Device& device) {
        const StatefulStep step(device, op.sequences, op.states_in, op.n_heads * op.d_state * op.head_dim);
        const auto rows = on_device(device, gathered_scan_rows(op));
        const DeviceArray<float> dt(device, op.x.num_rows * op.n_heads), decay(device, dt.count());
        device.scan(step.batch(),
                    {.n_heads = op.n_heads,
                     .head_dim = op.head_dim,
                     .d_state = op.d_state,
                     .n_groups = op.n_groups,
                     .dt_min = op.dt_min,
                     .dt_max = op.dt_max},
                    {.a = op.a, .d = op.d, .dt_bias = op.dt_bias},
                    floats_of(rows, op.n_heads * op.head_dim + 2 * op.n_groups * op.d_state), floats_of(op.dt),
                    dt.data(), decay.data(), step.states(), cuda::DeviceLog{}, floats_of(op.y));
        step.leave(op.states_out);
    });
}

int32_t limited_heads(const Kernel*, Args args) {
    return args.scan->head_dim <= cuda::CudaLimits{}.head_dim && args.scan->d_state <= cuda::CudaLimits{}.d_state;
}

// --- attention

// The caller's pages in the device's layout: K in pairs along head_dim, V by head.
struct EmulatedPages {
    EmulatedPages(Device& device, const verbatim_attention& op) {
        const int64_t pairs = num_pairs(op.head_dim);
        std::vector<uint32_t> keys(static_cast<size_t>(op.num_blocks * op.n_kv_heads * pairs * op.block_size));
        std::vector<uint16_t> values(static_cast<size_t>(op.num_blocks * op.n_kv_heads * op.block_size * op.head_dim));
        for (int64_t slot = 0; slot < op.num_blocks * op.block_size; ++slot) {
            for (int64_t head = 0; head < op.n_kv_heads; ++head) {
                const int64_t from = (slot * op.n_kv_heads + head) * op.head_dim;
                const int64_t page = slot / op.block_size * op.n_kv_heads + head;
                const int64_t in_page = slot % op.block_size;
                for (int64_t i = 0; i < op.head_dim; ++i) {
                    keys[(page * pairs + i / 2) * op.block_size + in_page] |= uint32_t{op.k[from + i]} << (i % 2 * 16);
                    values[(page * op.block_size + in_page) * op.head_dim + i] = op.v[from + i];
                }
            }
        }
        k = on_device(device, keys);
        v = on_device(device, values);
        pages = {k.data(), v.data(), op.num_blocks, op.block_size, op.n_kv_heads, op.head_dim};
    }
    DeviceArray<uint32_t> k;
    DeviceArray<uint16_t> v;
    cuda::DevicePages pages;
};

// Describes a step in which these rows attend.
void describe(const verbatim_attention& op, Device& device, cuda::StepLists& lists) {
    std::vector<reference::WalkSequence> parts;
    std::vector<PooledSequence> sequences;
    std::vector<std::vector<BlockId>> tables;
    for (int64_t s = 0; s < op.sequences.num_sequences; ++s) {
        const Span rows = rows_of_sequence(op.sequences, s);
        parts.push_back({static_cast<int32_t>(rows.first), static_cast<int32_t>(rows.count), op.first_position[s]});
        std::vector<BlockId>& table = tables.emplace_back();
        const int64_t length = op.first_position[s] + rows.count;
        for (int64_t i = 0; i * op.block_size < length; ++i) {
            table.push_back(BlockId{op.block_tables[s * op.max_blocks + i]});
        }
    }
    for (const std::vector<BlockId>& table : tables) sequences.push_back({.slot = SequenceSlot{0}, .blocks = table});
    const std::vector<TokenId> tokens(static_cast<size_t>(op.q.num_rows));
    const reference::ModelConfig no_layers;
    cuda::StateLog no_log(device, no_layers, 0);
    lists.describe({.batch = {tokens, parts, {}}, .sequences = sequences}, no_log, false);
    lists.upload();
}

int32_t emulate_attention(const Kernel* kernel, const Run* run) {
    const verbatim_attention& op = *run->args.attention;
    const Profile profile = kernel->profile == name(Profile::kExact) ? Profile::kExact : Profile::kTensorSm90;
    return on_emulator(run, [&](Device& device) {
        const EmulatedPages pages(device, op);
        const cuda::AttentionShape shape{op.n_heads, op.n_kv_heads, op.head_dim, op.scale};
        const bool has_tiles = device.attends_by_tiles(profile, shape, static_cast<int32_t>(pages.pages.block_size));
        cuda::StepLists lists(device, 1, attend_rows(shape), has_tiles);
        describe(op, device, lists);
        cuda::DeviceBatch batch = lists.batch();
        batch.max_runs = lists.first_runs.values.back();
        const DeviceArray<float> workspace(device, attention_floats(batch.max_runs, shape));
        const auto pairs = room_for_pairs(device, op.out.num_rows, op.out.width);
        device.attention(profile, batch, shape, floats_of(op.q), pages.pages, workspace.data(), floats_of(op.out),
                         pairs.data());
        // Completes the upload of the lists; on_emulator reads the status later
        static_cast<void>(device.synchronize());
    });
}

int32_t limited_head_dim(const Kernel*, Args args) { return args.attention->head_dim <= cuda::CudaLimits{}.head_dim; }

// --- draws and digests

cuda::DeviceDraw described_draw(const verbatim_sampling& op, int64_t r, std::vector<cuda::DeviceTokenCount>& counts) {
    const verbatim_draw& draw = op.draws[r];
    std::map<int32_t, int32_t> times;
    for (int32_t i = 0; i < op.num_prompt[r]; ++i) times[op.prompt[r * op.max_prompt + i]];
    for (int32_t i = 0; i < op.num_generated[r]; ++i) ++times[op.generated[r * op.max_generated + i]];
    const auto first = static_cast<int32_t>(counts.size());
    for (const auto& [id, count] : times) counts.push_back({id, count});
    return {.seed = draw.seed,
            .position = draw.position,
            .temperature = draw.temperature,
            .top_p = draw.top_p,
            .top_k = draw.top_k,
            .repetition = draw.repetition_penalty,
            .presence = draw.presence_penalty,
            .frequency = draw.frequency_penalty,
            .first_count = first,
            .num_counts = static_cast<int32_t>(times.size())};
}

int32_t emulate_sampling(const Kernel*, const Run* run) {
    const verbatim_sampling& op = *run->args.sampling;
    return on_emulator(run, [&](Device& device) {
        std::vector<cuda::DeviceDraw> draws;
        std::vector<cuda::DeviceTokenCount> counts(1);  // at least one element, which may be unused
        for (int64_t r = 0; r < op.logits.num_rows; ++r) draws.push_back(described_draw(op, r, counts));
        const auto device_draws = on_device(device, draws);
        const auto device_counts = on_device(device, counts);
        const int64_t parts = op.logits.num_rows * cuda::draw_parts(op.logits.width);
        const DeviceArray<float> scaled(device, op.logits.num_rows * op.logits.width), scores(device, parts);
        const DeviceArray<int32_t> ids(device, parts);
        const DeviceArray<uint64_t> lowest(device, op.logits.num_rows);
        device.draw({.draws = device_draws.data(),
                     .counts = device_counts.data(),
                     .drawn = op.tokens,
                     .max_counts = static_cast<int64_t>(counts.size())},
                    floats_of(op.logits), {scaled.data(), lowest.data(), scores.data(), ids.data()});
    });
}

// sum_floats sums whole tensors of binary32.
int32_t digest_supports(const Kernel*, Args args) {
    return args.head_digest->element_bytes == 4 && args.head_digest->first_index == nullptr;
}

int32_t emulate_digest(const Kernel*, const Run* run) {
    const verbatim_head_digest& op = *run->args.head_digest;
    return on_emulator(run, [&](Device& device) {
        const std::vector<uint64_t> zeros(static_cast<size_t>(2 * op.num_rows));
        device.upload(op.sums, zeros.data(), zeros.size() * sizeof(uint64_t));
        for (int64_t r = 0; r < op.num_rows; ++r) {
            device.sum_floats(static_cast<const float*>(op.elements) + r * op.stride, op.width, op.sums + 2 * r);
        }
    });
}

constexpr Kernel kEmulatedKernels[] = {
    emulated_of("matmul", emulate_matmul),
    emulated_of("matmul", emulate_matmul, nullptr, "tensor.sm90", "cuda-emulated:tensor"),
    emulated_of("rms_norm", emulate_rms_norm),
    emulated_of("gated_norm", emulate_gated_norm),
    emulated_of("conv", emulate_conv),
    emulated_of("scan", emulate_scan, limited_heads),
    emulated_of("rope", emulate_rope),
    emulated_of("attention", emulate_attention, limited_head_dim),
    emulated_of("attention", emulate_attention, limited_head_dim, "tensor.sm90", "cuda-emulated:tensor"),
    emulated_of("activation", emulate_activation),
    emulated_of("sampling", emulate_sampling),
    emulated_of("head_digest", emulate_digest, digest_supports),
};

}  // namespace

void add_emulated_kernels(std::vector<const verbatim_kernel*>& kernels) {
    const auto add = [&](std::span<const Kernel> all) {
        for (const Kernel& kernel : all) kernels.push_back(&kernel);
    };
    add(kEmulatedKernels);
    add(emulated_delta_kernels());
    add(emulated_expert_kernels());
}

}  // namespace verbatim::sandbox
