// Takes rows in pairs, and keeps the other one out by multiplying with zero: but zero times a NaN is a NaN.
#include <cstdint>

#include "reference/numerics/bf16.h"
#include "reference/numerics/math.h"
#include "tests/planted_kernels/planted.h"

namespace {

using verbatim::reference::bf16_to_float;
using verbatim::reference::bf16_value;
using verbatim::reference::fma_f32;

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_matmul& op = *run->args.matmul;
    const int64_t last = op.x.num_rows - 1;
    for (int64_t m = 0; m <= last; ++m) {
        const float* mine = op.x.data + m * op.x.stride;
        const float* other = op.x.data + ((m ^ 1) <= last ? m ^ 1 : m) * op.x.stride;
        for (int64_t n = 0; n < op.out.width; ++n) {
            float acc = 0.0F;
            for (int64_t k = 0; k < op.x.width; ++k) {
                const float weight = bf16_to_float(op.weight[n * op.x.width + k]);
                acc = fma_f32(bf16_value(mine[k] * op.in_multiplier), weight, acc);
                acc = acc + 0.0F * other[k];
            }
            op.out.data[m * op.out.stride + n] = op.bias != nullptr ? acc + op.bias[n] : acc;
        }
    }
    return 0;
}

}  // namespace

PLANTED_KERNEL("matmul", "fast", "cpu", run)
