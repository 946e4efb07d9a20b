// The plain loops of gated_norm, as `verbatim kernel list --contract gated_norm` defines it: correct and slow.
#include <cstdint>

#include "kernels/sandbox/kernel.h"
#include "reference/numerics/math.h"

namespace {

using verbatim::reference::fma_f32;
using verbatim::reference::silu_f32;
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

void apply_gate(const float* z, int64_t width, float* y) {
    for (int64_t i = 0; i < width; ++i) y[i] = y[i] * silu_f32(z[i]);
}

void apply_norm(const float* weight, float eps, int64_t width, float* y) {
    const float scale = 1.0F / sqrt_f32(sum_of_squares(y, width) / static_cast<float>(width) + eps);
    for (int64_t i = 0; i < width; ++i) y[i] = (y[i] * scale) * weight[i];
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_gated_norm& op = *run->args.gated_norm;
    const int64_t width = op.y.width / op.n_groups;
    for (int64_t r = 0; r < op.y.num_rows; ++r) {
        const float* z = op.z.data + r * op.z.stride;
        float* y = op.y.data + r * op.y.stride;
        if (op.gate != VERBATIM_NORM_THEN_GATE) apply_gate(z, op.y.width, y);
        for (int64_t g = 0; op.gate != VERBATIM_GATE_ONLY && g < op.n_groups; ++g) {
            apply_norm(op.weight + g * width, op.eps, width, y + g * width);
        }
        if (op.gate == VERBATIM_NORM_THEN_GATE) apply_gate(z, op.y.width, y);
    }
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "gated_norm",
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
