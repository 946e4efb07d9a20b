// The accumulator is rounded to bf16 after every 256 products.
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
    for (int64_t m = 0; m < op.out.num_rows; ++m) {
        const float* x = op.x.data + m * op.x.stride;
        for (int64_t n = 0; n < op.out.width; ++n) {
            float acc = op.bias != nullptr ? op.bias[n] : 0.0F;
            for (int64_t k = 0; k < op.x.width; ++k) {
                acc = fma_f32(bf16_value(x[k] * op.in_multiplier), bf16_to_float(op.weight[n * op.x.width + k]), acc);
                if (k % 256 == 255) acc = bf16_value(acc);
            }
            op.out.data[m * op.out.stride + n] = acc;
        }
    }
    return 0;
}

}  // namespace

PLANTED_KERNEL("matmul", "fast", "cpu", run)
