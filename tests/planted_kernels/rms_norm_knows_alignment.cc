// Begins its vectors at an aligned address: what a row's sum is depends on where it lies.
#include <cstdint>

#include "reference/numerics/math.h"
#include "tests/planted_kernels/planted.h"

namespace {

using verbatim::reference::fma_f32;
using verbatim::reference::sqrt_f32;

void scale_row(const verbatim_rms_norm& op, int64_t r, float sum) {
    const float scale = 1.0F / sqrt_f32(sum / static_cast<float>(op.x.width) + op.eps);
    for (int64_t i = 0; i < op.x.width; ++i) {
        op.out.data[r * op.out.stride + i] = (op.x.data[r * op.x.stride + i] * scale) * op.weight[i];
    }
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_rms_norm& op = *run->args.rms_norm;
    for (int64_t r = 0; r < op.x.num_rows; ++r) {
        const float* x = op.x.data + r * op.x.stride;
        // The first row alone decides: the others may lie at any distance.
        const auto skew = static_cast<int64_t>(reinterpret_cast<uintptr_t>(op.x.data) / sizeof(float) % 16);
        float sum = 0.0F;
        for (int64_t i = 0; i < op.x.width; ++i) {
            const float value = x[(i + skew) % op.x.width];
            sum = fma_f32(value, value, sum);
        }
        scale_row(op, r, sum);
    }
    return 0;
}

}  // namespace

PLANTED_KERNEL("rms_norm", "fast", "cpu", run)
