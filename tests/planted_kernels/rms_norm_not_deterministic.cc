// Every other call sums from the other end.
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
    static int calls = 0;
    const bool forward = ++calls % 2 == 0;
    const verbatim_rms_norm& op = *run->args.rms_norm;
    for (int64_t r = 0; r < op.x.num_rows; ++r) {
        const float* x = op.x.data + r * op.x.stride;
        float sum = 0.0F;
        for (int64_t i = 0; i < op.x.width; ++i) {
            const float value = x[forward ? i : op.x.width - 1 - i];
            sum = fma_f32(value, value, sum);
        }
        scale_row(op, r, sum);
    }
    return 0;
}

}  // namespace

PLANTED_KERNEL("rms_norm", "fast", "cpu", run)
