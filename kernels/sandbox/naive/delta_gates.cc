// The plain loops of delta_gates, as `verbatim kernel list --contract delta_gates` defines it: correct and slow.
#include <cstdint>

#include "kernels/sandbox/kernel.h"
#include "reference/numerics/math.h"

namespace {

using verbatim::reference::exp_f32;
using verbatim::reference::sigmoid_f32;
using verbatim::reference::softplus_f32;

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_delta_gates& op = *run->args.delta_gates;
    for (int64_t r = 0; r < op.b.num_rows; ++r) {
        float* b = op.b.data + r * op.b.stride;
        float* a = op.a.data + r * op.a.stride;
        for (int64_t h = 0; h < op.b.width; ++h) {
            b[h] = sigmoid_f32(b[h]);
            a[h] = exp_f32(softplus_f32(a[h] + op.dt_bias[h]) * op.rate[h]);
        }
    }
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "delta_gates",
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
