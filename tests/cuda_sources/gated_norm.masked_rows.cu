// A gated norm as block programs have it: a program per row and group, one block of the next power of two elements,
// loads with a mask that give zeros elsewhere, and reductions of the whole block.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include "kernels/sandbox/kernel.h"

namespace cg = cooperative_groups;

namespace {

constexpr int kThreads = 64;

// The block's sum, which every thread gets.
__device__ float block_sum(float x, float* scratch) {
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    x = cg::reduce(warp, x, cg::plus<float>());
    if (warp.thread_rank() == 0) scratch[warp.meta_group_rank()] = x;
    cg::sync(block);
    x = warp.thread_rank() < warp.meta_group_size() ? scratch[warp.thread_rank()] : 0.f;
    return cg::reduce(warp, x, cg::plus<float>());
}

template <int BLOCK_N>
__global__ void layer_norm_fwd_kernel(float* Y, const float* Z, const float* W, int64_t stride_y, int64_t stride_z,
                                      int N, float eps, int gate) {
    __shared__ float scratch[kThreads / 32];
    constexpr int kPerThread = (BLOCK_N + kThreads - 1) / kThreads;
    const int row = blockIdx.x, group = blockIdx.y;
    Y += row * stride_y + int64_t(group) * N;
    Z += row * stride_z + int64_t(group) * N;
    if (W != nullptr) W += int64_t(group) * N;

    float x[kPerThread], z[kPerThread];
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
        const int cols = i * kThreads + threadIdx.x;
        const bool mask = cols < N;
        x[i] = mask ? Y[cols] : 0.f;
        z[i] = mask ? Z[cols] : 0.f;
        z[i] = z[i] / (1.f + __expf(-z[i]));
        if (gate != VERBATIM_NORM_THEN_GATE) x[i] *= z[i];
    }
    if (gate != VERBATIM_GATE_ONLY) {
        float xbar = 0.f;
#pragma unroll
        for (int i = 0; i < kPerThread; ++i) xbar = fmaf(x[i], x[i], xbar);
        const float var = block_sum(xbar, scratch) / N;
        const float rstd = 1 / sqrtf(var + eps);
#pragma unroll
        for (int i = 0; i < kPerThread; ++i) {
            const int cols = i * kThreads + threadIdx.x;
            const float w = cols < N ? W[cols] : 0.f;
            x[i] = x[i] * rstd * w;
            if (gate == VERBATIM_NORM_THEN_GATE) x[i] *= z[i];
        }
    }
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
        const int cols = i * kThreads + threadIdx.x;
        if (cols < N) Y[cols] = x[i];
    }
}

template <int BLOCK_N>
bool launch_at_most(const verbatim_gated_norm& op, int n) {
    if (n > BLOCK_N) return false;
    const dim3 grid(op.y.num_rows, op.n_groups);
    layer_norm_fwd_kernel<BLOCK_N>
        <<<grid, kThreads>>>(op.y.data, op.z.data, op.weight, op.y.stride, op.z.stride, n, op.eps, op.gate);
    return true;
}

int32_t supports(const verbatim_kernel*, verbatim_args args) {
    return args.gated_norm->y.width / args.gated_norm->n_groups <= 16384 ? 1 : 0;
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_gated_norm& op = *run->args.gated_norm;
    const int n = op.y.width / op.n_groups;
    const bool done = launch_at_most<64>(op, n) || launch_at_most<256>(op, n) || launch_at_most<1024>(op, n) ||
                      launch_at_most<4096>(op, n) || launch_at_most<16384>(op, n);
    return done ? 0 : 1;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "gated_norm",
    .profile = "fast",
    .machine = "cuda",
    .supports = supports,
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
