// Adds the parts of a dot product in the order in which tasks end: the number and order of threads show.
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

struct Row {
    const verbatim_matmul& op;
    int64_t m;
};

void add_part(void* mine, int32_t index) {
    const auto& [op, m] = *static_cast<const Row*>(mine);
    for (int64_t n = 0; n < op.out.width; ++n) {
        const int64_t first = index * op.x.width / 4;
        const int64_t last = (index + 1) * op.x.width / 4;
        op.out.data[m * op.out.stride + n] += part(op, m, n, first, last);
    }
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_matmul& op = *run->args.matmul;
    for (int64_t m = 0; m < op.out.num_rows; ++m) {
        for (int64_t n = 0; n < op.out.width; ++n) op.out.data[m * op.out.stride + n] = biased(op, n, 0.0F);
        Row row{op, m};
        // Threads would race as well; one after another, their order alone is left.
        run->parallel(run, run->num_threads > 3 ? 0 : 4, add_part, &row);
        for (int32_t i = 0; run->num_threads > 3 && i < 4; ++i) add_part(&row, 3 - i);
    }
    return 0;
}

}  // namespace

PLANTED_KERNEL("matmul", "fast", "cpu", run)
