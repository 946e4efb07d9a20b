// The plain loops of experts, as `verbatim kernel list --contract experts` defines it: correct and slow.
#include <cstdint>
#include <vector>

#include "kernels/sandbox/kernel.h"
#include "reference/numerics/bf16.h"
#include "reference/numerics/math.h"

namespace {

using verbatim::reference::bf16_to_float;
using verbatim::reference::bf16_value;
using verbatim::reference::fma_f32;
using verbatim::reference::silu_f32;

constexpr int64_t kChunk = 256;

// matmul's dot product.
float dot(const float* x, const uint16_t* weight, int64_t num_k) {
    float total = 0.0F;
    for (int64_t first = 0; first < num_k; first += kChunk) {
        const int64_t last = first + kChunk < num_k ? first + kChunk : num_k;
        float acc = 0.0F;
        for (int64_t k = first; k < last; k += 2) {
            if (k + 1 < last) acc = fma_f32(bf16_value(x[k + 1]), bf16_to_float(weight[k + 1]), acc);
            acc = fma_f32(bf16_value(x[k]), bf16_to_float(weight[k]), acc);
        }
        total = total + acc;
    }
    return total;
}

// The intermediate values [d_ff] of one expert for one row.
std::vector<float> inner_of(const verbatim_experts& op, int64_t expert, const float* x) {
    const int64_t width = op.x.width;
    const int64_t matrix = expert * op.d_ff * width;
    std::vector<float> inner;
    for (int64_t f = 0; f < op.d_ff; ++f) {
        const float up = dot(x, op.up + matrix + f * width, width);
        if (op.kind == VERBATIM_SWIGLU) {
            inner.push_back(up * silu_f32(dot(x, op.gate + matrix + f * width, width)));
        } else {
            const float r = up > 0.0F || up != up ? up : 0.0F;
            inner.push_back(r * r);
        }
    }
    return inner;
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_experts& op = *run->args.experts;
    for (int64_t m = 0; m < op.x.num_rows; ++m) {
        float* acc = op.out.data + m * op.out.stride;
        const float* chosen = op.chosen.data + m * op.chosen.stride;
        for (int64_t j = 0; j < op.out.width; ++j) acc[j] = 0.0F;
        for (int64_t i = 0; i < op.n_chosen; ++i) {
            const auto expert = static_cast<int64_t>(chosen[i]);
            const std::vector<float> inner = inner_of(op, expert, op.x.data + m * op.x.stride);
            const uint16_t* down = op.down + expert * op.out.width * op.d_ff;
            for (int64_t j = 0; j < op.out.width; ++j) {
                acc[j] = fma_f32(chosen[op.n_chosen + i], dot(inner.data(), down + j * op.d_ff, op.d_ff), acc[j]);
            }
        }
    }
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "experts",
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
