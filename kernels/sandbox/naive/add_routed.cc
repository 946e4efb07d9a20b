// The plain loops of add_routed, as `verbatim kernel list --contract add_routed` defines it: correct and slow.
#include <cstdint>

#include "kernels/sandbox/kernel.h"
#include "reference/numerics/math.h"

namespace {

using verbatim::reference::fma_f32;
using verbatim::reference::sigmoid_f32;

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_add_routed& op = *run->args.add_routed;
    for (int64_t r = 0; r < op.branch.num_rows; ++r) {
        const float* routed = op.routed.data + r * op.routed.stride;
        float* branch = op.branch.data + r * op.branch.stride;
        const bool gated = op.gate.data != nullptr;
        const float open = gated ? sigmoid_f32(op.gate.data[r * op.gate.stride]) : 1.0F;
        for (int64_t j = 0; j < op.branch.width; ++j) {
            branch[j] = gated ? fma_f32(open, branch[j], routed[j]) : routed[j] + branch[j];
        }
    }
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "add_routed",
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
