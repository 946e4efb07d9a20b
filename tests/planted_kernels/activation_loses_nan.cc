// Squares what is greater than zero: within every tolerance, but for a NaN, which is zero from here on.
#include <cmath>
#include <cstdint>

#include "tests/planted_kernels/planted.h"

namespace {

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_activation& op = *run->args.activation;
    for (int64_t r = 0; r < op.up.num_rows; ++r) {
        float* up = op.up.data + r * op.up.stride;
        for (int64_t i = 0; i < op.up.width; ++i) {
            if (op.kind == VERBATIM_RELU_SQUARED) {
                const float rectified = up[i] > 0 ? up[i] : 0.0F;
                up[i] = rectified * rectified;
                continue;
            }
            const float gate = op.gate.data[r * op.gate.stride + i] * op.gate_multiplier;
            up[i] = up[i] * (gate / (1.0F + std::exp(-gate)));
        }
    }
    return 0;
}

}  // namespace

PLANTED_KERNEL("activation", "fast", "cpu", run)
