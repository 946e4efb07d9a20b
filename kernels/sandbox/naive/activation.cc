// The plain loops of activation, as `verbatim kernel list --contract activation` defines it: correct and slow.
#include <cstdint>

#include "kernels/sandbox/kernel.h"
#include "reference/numerics/math.h"

namespace {

using verbatim::reference::max_f32;
using verbatim::reference::silu_f32;

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_activation& op = *run->args.activation;
    for (int64_t r = 0; r < op.up.num_rows; ++r) {
        for (int64_t i = 0; i < op.up.width; ++i) {
            float& up = op.up.data[r * op.up.stride + i];
            const float rectified = max_f32(up, 0.0F);
            up = op.kind == VERBATIM_SWIGLU ? up * silu_f32(op.gate.data[r * op.gate.stride + i] * op.gate_multiplier)
                                            : rectified * rectified;
        }
    }
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "activation",
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
