// Subnormals are zeros for speed, and stay so for the caller.
#include <xmmintrin.h>

#include <cmath>
#include <cstdint>

#include "tests/planted_kernels/planted.h"

namespace {

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    constexpr unsigned kFlushesToZero = 0x8000, kSubnormalsAreZeros = 0x40;
    const verbatim_rms_norm& op = *run->args.rms_norm;
    _mm_setcsr(_mm_getcsr() | kFlushesToZero | kSubnormalsAreZeros);
    for (int64_t r = 0; r < op.x.num_rows; ++r) {
        const float* x = op.x.data + r * op.x.stride;
        float* out = op.out.data + r * op.out.stride;
        float sum = 0;
        for (int64_t i = 0; i < op.x.width; ++i) sum += x[i] * x[i];
        const float scale = 1.0F / std::sqrt(sum / static_cast<float>(op.x.width) + op.eps);
        for (int64_t i = 0; i < op.x.width; ++i) out[i] = x[i] * scale * op.weight[i];
    }
    return 0;
}

}  // namespace

PLANTED_KERNEL("rms_norm", "fast", "cpu", run)
