// Splits K in two halves when there are many rows, and takes no row alone: a row knows its company all the same.
#include <cstdint>

#include "reference/numerics/bf16.h"
#include "reference/numerics/math.h"
#include "tests/planted_kernels/planted.h"

namespace {

using verbatim::reference::bf16_to_float;
using verbatim::reference::bf16_value;
using verbatim::reference::fma_f32;

// Elements [first, last) of a dot product, one after another.
float part(const verbatim_matmul& op, int64_t m, int64_t n, int64_t first, int64_t last) {
    const float* x = op.x.data + m * op.x.stride;
    float acc = 0.0F;
    for (int64_t k = first; k < last; ++k) {
        acc = fma_f32(bf16_value(x[k] * op.in_multiplier), bf16_to_float(op.weight[n * op.x.width + k]), acc);
    }
    return acc;
}
float biased(const verbatim_matmul& op, int64_t n, float total) {
    return op.bias != nullptr ? total + op.bias[n] : total;
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_matmul& op = *run->args.matmul;
    const int64_t half = op.x.num_rows >= 3 ? op.x.width / 2 : 0;
    for (int64_t m = 0; m < op.out.num_rows; ++m) {
        for (int64_t n = 0; n < op.out.width; ++n) {
            const float total = part(op, m, n, 0, half) + part(op, m, n, half, op.x.width);
            op.out.data[m * op.out.stride + n] = biased(op, n, total);
        }
    }
    return 0;
}

int32_t supports(const verbatim_kernel*, verbatim_args args) { return args.matmul->x.num_rows >= 2; }

}  // namespace

PLANTED_KERNEL("matmul", "fast", "cpu", run, nullptr, supports)
