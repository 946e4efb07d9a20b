// The plain loops of matmul, as `verbatim kernel list --contract matmul` defines it: correct and slow.
#include <cstdint>

#include "kernels/sandbox/kernel.h"
#include "reference/numerics/bf16.h"
#include "reference/numerics/math.h"

namespace {

using verbatim::reference::bf16_to_float;
using verbatim::reference::bf16_value;
using verbatim::reference::fma_f32;

constexpr int64_t kChunk = 256;

float dot(const float* x, float multiplier, const uint16_t* weight, int64_t num_k) {
    float total = 0.0F;
    for (int64_t first = 0; first < num_k; first += kChunk) {
        const int64_t last = first + kChunk < num_k ? first + kChunk : num_k;
        float acc = 0.0F;
        for (int64_t k = first; k < last; k += 2) {
            if (k + 1 < last) acc = fma_f32(bf16_value(x[k + 1] * multiplier), bf16_to_float(weight[k + 1]), acc);
            acc = fma_f32(bf16_value(x[k] * multiplier), bf16_to_float(weight[k]), acc);
        }
        total = total + acc;
    }
    return total;
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_matmul& op = *run->args.matmul;
    for (int64_t m = 0; m < op.out.num_rows; ++m) {
        for (int64_t n = 0; n < op.out.width; ++n) {
            const float total =
                dot(op.x.data + m * op.x.stride, op.in_multiplier, op.weight + n * op.x.width, op.x.width);
            op.out.data[m * op.out.stride + n] = op.bias != nullptr ? total + op.bias[n] : total;
        }
    }
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "matmul",
    .profile = "exact",
    .machine = "cpu",
    .self = nullptr,
    .supports = nullptr,
    .workspace_bytes = nullptr,
    .packed_bytes = nullptr,
    .pack = nullptr,
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
