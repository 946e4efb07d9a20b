// Tasks share the partial sums, which are static.
#include <cstdint>

#include "reference/numerics/math.h"
#include "tests/planted_kernels/planted.h"

namespace {

using verbatim::reference::fma_f32;
using verbatim::reference::sqrt_f32;

float partials[64];

void row(void* mine, int32_t r) {
    const verbatim_rms_norm& op = **static_cast<const verbatim_rms_norm**>(mine);
    const float* x = op.x.data + r * op.x.stride;
    for (float& p : partials) p = 0.0F;
    for (int64_t i = 0; i < op.x.width; ++i) partials[i % 64] = fma_f32(x[i], x[i], partials[i % 64]);
    for (int half = 32; half >= 1; half /= 2) {
        for (int j = 0; j < half; ++j) partials[j] += partials[j + half];
    }
    const float scale = 1.0F / sqrt_f32(partials[0] / static_cast<float>(op.x.width) + op.eps);
    for (int64_t i = 0; i < op.x.width; ++i) op.out.data[r * op.out.stride + i] = (x[i] * scale) * op.weight[i];
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_rms_norm* op = run->args.rms_norm;
    run->parallel(run, static_cast<int32_t>(op->x.num_rows), row, &op);
    return 0;
}

}  // namespace

PLANTED_KERNEL("rms_norm", "exact", "cpu", run)
