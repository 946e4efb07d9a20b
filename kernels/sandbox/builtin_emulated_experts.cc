// The operations of a mixture of experts in kernels/cuda behind the structs of kernels/sandbox/kernel.h.
#include <algorithm>
#include <span>
#include <vector>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device_array.h"
#include "kernels/cuda/fragments.h"
#include "kernels/sandbox/builtin_parts.h"
#include "kernels/sandbox/emulated_parts.h"
#include "reference/numerics/profile.h"
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

int32_t emulate_router(const Kernel*, const Run* run) {
    const verbatim_router& op = *run->args.router;
    return on_emulator(run, [&](Device& device) {
        const std::span weight(op.weight, static_cast<size_t>(op.out.width * op.x.width));
        const auto packed = on_device(device, cuda::pack_router(weight, op.out.width, op.x.width));
        const auto pairs = room_for_pairs(device, op.x.num_rows, op.x.width);
        device.round_rows(floats_of(op.x), 1.0F, pairs.data());
        device.route(pairs.data(), {packed.data(), op.x.width}, floats_of(op.out));
    });
}

int32_t emulate_choose(const Kernel*, const Run* run) {
    const verbatim_choose& op = *run->args.choose;
    return on_emulator(run, [&](Device& device) {
        device.choose({.score = static_cast<cuda::RouterScore>(op.router),
                       .normalize = op.normalize != 0,
                       .n_experts = static_cast<int32_t>(op.n_experts),
                       .n_chosen = static_cast<int32_t>(op.n_chosen),
                       .n_groups = static_cast<int32_t>(op.n_groups),
                       .n_chosen_groups = static_cast<int32_t>(op.n_chosen_groups),
                       .sum_epsilon = op.sum_epsilon,
                       .scale = op.scale},
                      floats_of(op.logits), op.choice_bias, floats_of(op.out));
    });
}
int32_t limited_experts(const Kernel*, Args args) { return args.choose->n_experts <= cuda::CudaLimits{}.experts; }

// Every expert's matrix [rows, cols], one after another, packed as the profile's matmul reads them.
DeviceArray<uint32_t> packed_matrices(Device& device, Profile profile, const uint16_t* weight, int64_t n_experts,
                                      int64_t rows, int64_t cols) {
    reference::WorkerPool threads(1);
    std::vector<uint32_t> all;
    for (int64_t e = 0; e < n_experts; ++e) {
        const reference::MatrixView matrix{weight + e * rows * cols, rows, cols};
        const auto words =
            profile == Profile::kExact ? cuda::pack_pairs(matrix, threads) : cuda::pack_fragments(matrix, threads);
        all.insert(all.end(), words.begin(), words.end());
    }
    return on_device(device, all);
}

void compute_experts(Device& device, Profile profile, const verbatim_experts& op) {
    const cuda::ExpertCounts counts{op.x.num_rows, op.n_experts, op.n_chosen};
    const int64_t num = counts.num_entries();
    const DeviceArray<int32_t> rows(device, num), entries(device, num);
    const DeviceArray<cuda::DeviceExpertPart> parts(device, counts.num_parts());
    const cuda::DeviceEntries of{counts, rows.data(), entries.data(), parts.data()};
    const auto of_rows = room_for_pairs(device, op.x.num_rows, op.x.width);
    const auto gathered = room_for_pairs(device, num, op.x.width);
    const auto inner = room_for_pairs(device, num, op.d_ff);
    const auto left = room_for_pairs(device, op.out.num_rows, op.out.width);
    const DeviceArray<float> up(device, num * op.d_ff), results(device, num * op.x.width);
    const auto multiply = [&](const auto& from, const uint16_t* weight, int64_t outputs, int64_t num_k,
                              const DeviceArray<float>& to) {
        const auto words = packed_matrices(device, profile, weight, op.n_experts, outputs, num_k);
        device.multiply_entries(profile, of, from.data(), {words.data(), nullptr, outputs, num_k},
                                floats_of(to, outputs));
        static_cast<void>(device.synchronize());  // before the host's copy is freed
    };
    device.round_rows(floats_of(op.x), 1.0F, of_rows.data());
    device.list_entries(floats_of(op.chosen), of);
    device.gather_entries(of, of_rows.data(), cuda::row_pairs_of(op.x.width), gathered.data());
    multiply(gathered, op.up, op.d_ff, op.x.width, up);
    if (op.kind == VERBATIM_SWIGLU) {
        const DeviceArray<float> gate(device, num * op.d_ff);
        multiply(gathered, op.gate, op.d_ff, op.x.width, gate);
        device.swiglu(floats_of(gate, op.d_ff), 1.0F, floats_of(up, op.d_ff), inner.data());
        static_cast<void>(device.synchronize());
    } else {
        device.relu_squared(floats_of(up, op.d_ff), inner.data());
    }
    multiply(inner, op.down, op.x.width, op.d_ff, results);
    device.combine(of, floats_of(op.chosen), floats_of(results, op.x.width), floats_of(op.out), left.data());
}

int32_t emulate_experts(const Kernel* kernel, const Run* run) {
    const verbatim_experts& op = *run->args.experts;
    const Profile profile = kernel->profile == name(Profile::kExact) ? Profile::kExact : Profile::kTensorSm90;
    return on_emulator(run, [&](Device& device) { compute_experts(device, profile, op); });
}

int32_t emulate_add_routed(const Kernel*, const Run* run) {
    const verbatim_add_routed& op = *run->args.add_routed;
    return on_emulator(run, [&](Device& device) {
        device.add_routed(floats_of(op.routed), floats_of(op.gate), floats_of(op.branch));
    });
}

constexpr Kernel kExpertKernels[] = {
    emulated_of("router", emulate_router),
    emulated_of("choose", emulate_choose, limited_experts),
    emulated_of("experts", emulate_experts),
    emulated_of("add_routed", emulate_add_routed),
};

}  // namespace

std::span<const Kernel> emulated_expert_kernels() { return kExpertKernels; }

}  // namespace verbatim::sandbox
