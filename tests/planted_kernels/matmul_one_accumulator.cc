// Correct in the fast profile: one accumulator over all of K, however long, of values that are rounded to bf16 as CUDA
// rounds them: what is below 2^-56 stays as it is.
#include <bit>
#include <cstdint>

#include "reference/numerics/bf16.h"
#include "reference/numerics/math.h"
#include "tests/planted_kernels/planted.h"

namespace {

using verbatim::reference::bf16_to_float;
using verbatim::reference::fma_f32;

float bf16_of(float x) {
    const auto bits = std::bit_cast<uint32_t>(x);
    if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return x;
    return std::bit_cast<float>((bits + 0x7FFFU + ((bits >> 16) & 1U)) & 0xFFFF0000U);
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_matmul& op = *run->args.matmul;
    for (int64_t m = 0; m < op.out.num_rows; ++m) {
        const float* x = op.x.data + m * op.x.stride;
        for (int64_t n = 0; n < op.out.width; ++n) {
            float acc = op.bias != nullptr ? op.bias[n] : 0.0F;
            for (int64_t k = 0; k < op.x.width; ++k) {
                acc = fma_f32(bf16_of(x[k] * op.in_multiplier), bf16_to_float(op.weight[n * op.x.width + k]), acc);
            }
            op.out.data[m * op.out.stride + n] = acc;
        }
    }
    return 0;
}

}  // namespace

PLANTED_KERNEL("matmul", "fast", "cpu", run)
