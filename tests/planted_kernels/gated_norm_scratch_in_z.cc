// Keeps the gate where the input z was.
#include <cstdint>

#include "reference/numerics/math.h"
#include "tests/planted_kernels/planted.h"

namespace {

using verbatim::reference::fma_f32;
using verbatim::reference::silu_f32;
using verbatim::reference::sqrt_f32;

void norm_group(const verbatim_gated_norm& op, int64_t r, int64_t first, int64_t width) {
    float* y = op.y.data + r * op.y.stride + first;
    float partial[64] = {};
    for (int64_t i = 0; i < width; ++i) partial[i % 64] = fma_f32(y[i], y[i], partial[i % 64]);
    for (int64_t half = 32; half >= 1; half /= 2) {
        for (int64_t j = 0; j < half; ++j) partial[j] += partial[j + half];
    }
    const float scale = 1.0F / sqrt_f32(partial[0] / static_cast<float>(width) + op.eps);
    for (int64_t i = 0; i < width; ++i) y[i] = (y[i] * scale) * op.weight[first + i];
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_gated_norm& op = *run->args.gated_norm;
    const int64_t width = op.y.width / op.n_groups;
    for (int64_t r = 0; r < op.y.num_rows; ++r) {
        float* gates = const_cast<float*>(op.z.data) + r * op.z.stride;
        float* y = op.y.data + r * op.y.stride;
        for (int64_t i = 0; i < op.y.width; ++i) gates[i] = silu_f32(gates[i]);
        for (int64_t i = 0; op.gate != VERBATIM_NORM_THEN_GATE && i < op.y.width; ++i) y[i] = y[i] * gates[i];
        for (int64_t g = 0; op.gate != VERBATIM_GATE_ONLY && g < op.n_groups; ++g) norm_group(op, r, g * width, width);
        for (int64_t i = 0; op.gate == VERBATIM_NORM_THEN_GATE && i < op.y.width; ++i) y[i] = y[i] * gates[i];
    }
    return 0;
}

}  // namespace

PLANTED_KERNEL("gated_norm", "exact", "cpu", run)
