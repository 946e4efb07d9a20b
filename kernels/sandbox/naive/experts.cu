// The plain loops of experts for CUDA, per `verbatim kernel list --contract experts`: correct and slow.
#include <cstdint>

#include "kernels/sandbox/cuda_kernel.h"
#include "reference/numerics/bf16.h"
#include "reference/numerics/math.h"

namespace {

namespace simt = verbatim::simt;
namespace sandbox = verbatim::sandbox;
using verbatim::reference::bf16_to_float;
using verbatim::reference::bf16_value;
using verbatim::reference::fma_f32;
using verbatim::reference::silu_f32;

constexpr int64_t kChunk = 256;

// matmul's dot product of elements from x_at and weight_at on.
template <typename Values>
SIMT_FUNCTION float dot(const simt::Global<Values>& x, int64_t x_at, const simt::Global<const uint16_t>& weight,
                        int64_t weight_at, int64_t num_k) {
    float total = 0.0F;
    for (int64_t first = 0; first < num_k; first += kChunk) {
        const int64_t last = first + kChunk < num_k ? first + kChunk : num_k;
        float acc = 0.0F;
        for (int64_t k = first; k < last; k += 2) {
            if (k + 1 < last) {
                acc = fma_f32(bf16_value(x[x_at + k + 1]), bf16_to_float(weight[weight_at + k + 1]), acc);
            }
            acc = fma_f32(bf16_value(x[x_at + k]), bf16_to_float(weight[weight_at + k]), acc);
        }
        total = total + acc;
    }
    return total;
}

// Parameters of both launches.
struct ExpertRows {
    int32_t kind;
    int64_t n_chosen, d_ff, width;
    sandbox::RowsView<const float> x, chosen;
    simt::Global<const uint16_t> gate, up, down;
    simt::Global<float> inner;  // [num_rows, n_chosen, d_ff], scratch

    SIMT_FUNCTION int64_t matrix(int64_t m, int64_t i) const {
        return static_cast<int64_t>(static_cast<float>(chosen.data[chosen.at(m, i)])) * d_ff * width;
    }
};

// One thread per row, chosen expert and intermediate element.
struct Inner {
    ExpertRows rows;

    SIMT_FUNCTION void operator()() const {
        const int64_t f = sandbox::global_thread() % rows.d_ff;
        const int64_t i = sandbox::global_thread() / rows.d_ff % rows.n_chosen;
        const int64_t m = sandbox::global_thread() / rows.d_ff / rows.n_chosen;
        if (m >= rows.x.num_rows) return;
        const int64_t weight = rows.matrix(m, i) + f * rows.width;
        const float up = dot(rows.x.data, rows.x.at(m, 0), rows.up, weight, rows.width);
        float value = 0.0F;
        if (rows.kind == VERBATIM_SWIGLU) {
            value = up * silu_f32(dot(rows.x.data, rows.x.at(m, 0), rows.gate, weight, rows.width));
        } else {
            const float r = up > 0.0F || up != up ? up : 0.0F;
            value = r * r;
        }
        rows.inner[sandbox::global_thread()] = value;
    }
};

// One thread per output.
struct Combine {
    ExpertRows rows;
    sandbox::RowsView<float> out;

    SIMT_FUNCTION void operator()() const {
        const int64_t m = sandbox::global_thread() / rows.width;
        const int64_t j = sandbox::global_thread() % rows.width;
        if (m >= rows.x.num_rows) return;
        float acc = 0.0F;
        for (int64_t i = 0; i < rows.n_chosen; ++i) {
            const int64_t at = (m * rows.n_chosen + i) * rows.d_ff;
            const float y = dot(rows.inner, at, rows.down, rows.matrix(m, i) + j * rows.d_ff, rows.d_ff);
            acc = fma_f32(rows.chosen.data[rows.chosen.at(m, rows.n_chosen + i)], y, acc);
        }
        out.data[out.at(m, j)] = acc;
    }
};

int64_t workspace_bytes(const verbatim_kernel*, verbatim_args args, int32_t) {
    const verbatim_experts& op = *args.experts;
    return op.x.num_rows * op.n_chosen * op.d_ff * static_cast<int64_t>(sizeof(float));
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_experts& op = *run->args.experts;
    const int64_t weights = op.n_experts * op.d_ff * op.x.width;
    const int64_t inner = op.x.num_rows * op.n_chosen * op.d_ff;
    const ExpertRows rows{op.kind,
                          op.n_chosen,
                          op.d_ff,
                          op.x.width,
                          sandbox::rows_view(*run, op.x),
                          sandbox::rows_view(*run, op.chosen),
                          sandbox::view(*run, op.gate, weights),
                          sandbox::view(*run, op.up, weights),
                          sandbox::view(*run, op.down, weights),
                          sandbox::view(*run, static_cast<float*>(run->workspace), inner)};
    const int32_t threads = sandbox::block_threads(*run, 64);
    sandbox::launch(*run, "experts: inner", {sandbox::blocks_for(inner, threads)}, {threads}, Inner{rows});
    sandbox::launch(*run, "experts: combine", {sandbox::blocks_for(op.x.num_rows * op.x.width, threads)}, {threads},
                    Combine{rows, sandbox::rows_view(*run, op.out)});
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "experts",
    .profile = "exact",
    .machine = "cuda",
    .self = nullptr,
    .supports = nullptr,
    .workspace_bytes = workspace_bytes,
    .packed_bytes = nullptr,
    .pack = nullptr,
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
