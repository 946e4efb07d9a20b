// Reads whole vectors of 16: past the row's end, where there may be nothing.
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

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_rms_norm& op = *run->args.rms_norm;
    for (int64_t r = 0; r < op.x.num_rows; ++r) {
        const volatile float* x = op.x.data + r * op.x.stride;
        float partial[64] = {};
        for (int64_t first = 0; first < op.x.width; first += 16) {
            float vector[16];
            for (int64_t i = 0; i < 16; ++i) vector[i] = x[first + i];
            for (int64_t i = 0; i < 16 && first + i < op.x.width; ++i) {
                partial[(first + i) % 64] = fma_f32(vector[i], vector[i], partial[(first + i) % 64]);
            }
        }
        scale_row(op, r, halved(partial));
    }
    return 0;
}

}  // namespace

PLANTED_KERNEL("rms_norm", "exact", "cpu", run)
