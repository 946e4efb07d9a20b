// The plain loops of rope, as `verbatim kernel list --contract rope` defines it: correct and slow.
#include <cstdint>

#include "kernels/sandbox/kernel.h"
#include "reference/numerics/math.h"

namespace {

using verbatim::reference::fma_f32;

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_rope& op = *run->args.rope;
    for (int64_t r = 0; r < op.x.num_rows; ++r) {
        const float* c = op.cos + op.positions[r] * op.n_pairs;
        const float* s = op.sin + op.positions[r] * op.n_pairs;
        for (int64_t h = 0; h < op.n_heads; ++h) {
            float* x = op.x.data + r * op.x.stride + h * op.head_dim;
            for (int64_t i = 0; i < op.n_pairs; ++i) {
                const float a = x[i];
                const float b = x[i + op.n_pairs];
                x[i] = fma_f32(a, c[i], -(b * s[i]));
                x[i + op.n_pairs] = fma_f32(b, c[i], a * s[i]);
            }
        }
    }
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "rope",
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
