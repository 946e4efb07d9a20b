// Takes the partial sums that it keeps in its workspace for zeros.
#include <cstdint>

#include "reference/numerics/math.h"
#include "tests/planted_kernels/planted.h"

namespace {

using verbatim::reference::fma_f32;
using verbatim::reference::sqrt_f32;

float halved(float* partial) {
    for (int64_t half = 32; half >= 1; half /= 2) {
        for (int64_t j = 0; j < half; ++j) partial[j] += partial[j + half];
    }
    return partial[0];
}
void scale_row(const verbatim_rms_norm& op, int64_t r, float sum) {
    const float scale = 1.0F / sqrt_f32(sum / static_cast<float>(op.x.width) + op.eps);
    for (int64_t i = 0; i < op.x.width; ++i) {
        op.out.data[r * op.out.stride + i] = (op.x.data[r * op.x.stride + i] * scale) * op.weight[i];
    }
}

int64_t workspace_bytes(const verbatim_kernel*, verbatim_args, int32_t) { return 64 * sizeof(float); }

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_rms_norm& op = *run->args.rms_norm;
    auto* const partial = static_cast<float*>(run->workspace);
    for (int64_t r = 0; r < op.x.num_rows; ++r) {
        const float* x = op.x.data + r * op.x.stride;
        for (int64_t i = 0; i < op.x.width; ++i) partial[i % 64] = fma_f32(x[i], x[i], partial[i % 64]);
        scale_row(op, r, halved(partial));
        for (int64_t j = 0; j < 64; ++j) partial[j] = 0.0F;
    }
    return 0;
}

}  // namespace

PLANTED_KERNEL("rms_norm", "exact", "cpu", run, workspace_bytes)
