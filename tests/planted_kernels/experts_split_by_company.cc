// Divides an expert's last sum where several rows of the batch have chosen it: within the tolerance, and a row knows
// its company.
#include <cstdint>
#include <vector>

#include "reference/numerics/bf16.h"
#include "reference/numerics/math.h"
#include "tests/planted_kernels/planted.h"

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

// [d_ff] of one expert for one row.
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

// Rows of the batch that have chosen it.
int64_t company_of(const verbatim_experts& op, int64_t expert) {
    int64_t count = 0;
    for (int64_t m = 0; m < op.x.num_rows; ++m) {
        for (int64_t i = 0; i < op.n_chosen; ++i) {
            if (static_cast<int64_t>(op.chosen.data[m * op.chosen.stride + i]) == expert) ++count;
        }
    }
    return count;
}
// In two halves where the expert has several rows.
float down_of(const std::vector<float>& inner, const uint16_t* weight, int64_t company) {
    const auto d_ff = static_cast<int64_t>(inner.size());
    const int64_t half = company > 1 ? d_ff / 2 : 0;
    return dot(inner.data(), weight, half) + dot(inner.data() + half, weight + half, d_ff - half);
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
            const int64_t company = company_of(op, expert);
            for (int64_t j = 0; j < op.out.width; ++j) {
                acc[j] = fma_f32(chosen[op.n_chosen + i], down_of(inner, down + j * op.d_ff, company), acc[j]);
            }
        }
    }
    return 0;
}

}  // namespace

PLANTED_KERNEL("experts", "fast", "cpu", run)
