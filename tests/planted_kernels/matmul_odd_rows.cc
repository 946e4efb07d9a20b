// Sums odd rows from the other end: a row knows its place.
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
    for (int64_t m = 0; m < op.out.num_rows; ++m) {
        const int64_t cut = m % 2 == 0 ? op.x.width : op.x.width / 2;
        for (int64_t n = 0; n < op.out.width; ++n) {
            const float total = part(op, m, n, cut, op.x.width) + part(op, m, n, 0, cut);
            op.out.data[m * op.out.stride + n] = biased(op, n, total);
        }
    }
    return 0;
}

}  // namespace

PLANTED_KERNEL("matmul", "fast", "cpu", run)
