// The plain loops of rms_norm, as `verbatim kernel list --contract rms_norm` defines it: correct and slow.
#include <cstdint>

#include "kernels/sandbox/kernel.h"
#include "reference/numerics/math.h"

namespace {

using verbatim::reference::fma_f32;
using verbatim::reference::sqrt_f32;

// 64 partial sums, halved: the order of rms_norm's contract.
float sum_of_squares(const float* x, int64_t n) {
    float partial[64] = {};
    for (int64_t i = 0; i < n; ++i) partial[i % 64] = fma_f32(x[i], x[i], partial[i % 64]);
    for (int64_t half = 32; half >= 1; half /= 2) {
        for (int64_t j = 0; j < half; ++j) partial[j] += partial[j + half];
    }
    return partial[0];
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_rms_norm& op = *run->args.rms_norm;
    const int64_t n = op.x.width;
    for (int64_t r = 0; r < op.x.num_rows; ++r) {
        const float* x = op.x.data + r * op.x.stride;
        float* out = op.out.data + r * op.out.stride;
        const float scale = 1.0F / sqrt_f32(sum_of_squares(x, n) / static_cast<float>(n) + op.eps);
        for (int64_t i = 0; i < n; ++i) out[i] = (x[i] * scale) * op.weight[i];
    }
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "rms_norm",
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
