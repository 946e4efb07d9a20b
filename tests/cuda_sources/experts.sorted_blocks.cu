// A mixture of experts: the rows' choices are sorted by expert into padded blocks, in the order that atomic counters
// give, and a grouped product takes these blocks.
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <cub/cub.cuh>

#include "kernels/sandbox/kernel.h"

constexpr int kBlock = 4, kMaxExperts = 64, kThreads = 64;
__global__ void __launch_bounds__(kThreads) moe_align(const float* chosen, int64_t stride, int rows, int k, int experts,
                                                      int* sorted, int* expert_ids, int* total, int most) {
    __shared__ int counts[kMaxExperts], offsets[kMaxExperts + 1];
    using BlockScan = cub::BlockScan<int, kThreads>;
    __shared__ typename BlockScan::TempStorage temp;
    for (int e = threadIdx.x; e < kMaxExperts; e += blockDim.x) counts[e] = 0;
    for (int i = threadIdx.x; i < most; i += blockDim.x) sorted[i] = rows * k;
    __syncthreads();
    for (int i = threadIdx.x; i < rows * k; i += blockDim.x) atomicAdd(&counts[int(chosen[i / k * stride + i % k])], 1);
    __syncthreads();
    int padded = threadIdx.x < experts ? (counts[threadIdx.x] + kBlock - 1) / kBlock * kBlock : 0, begin, sum;
    BlockScan(temp).ExclusiveSum(padded, begin, sum);
    if (threadIdx.x < experts) {
        offsets[threadIdx.x] = begin;
        counts[threadIdx.x] = 0;
        for (int i = begin; i < begin + padded; i += kBlock) expert_ids[i / kBlock] = threadIdx.x;
    }
    if (threadIdx.x == 0) *total = sum;
    __syncthreads();
    for (int i = threadIdx.x; i < rows * k; i += blockDim.x) {
        const int e = int(chosen[i / k * stride + i % k]);
        sorted[offsets[e] + atomicAdd(&counts[e], 1)] = i;
    }
}
__device__ __forceinline__ float warp_sum(float v) {
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffff, v, o);
    return v;
}
struct W {
    const __nv_bfloat16 *gate, *up, *down;
    int kind, d_ff, width;
};
__global__ void inner(const float* x, int64_t xs, const int* sorted, const int* expert_ids, const int* total, W w,
                      int k, int pairs, float* inner) {
    if (blockIdx.x * kBlock >= *total) return;
    const int64_t e = expert_ids[blockIdx.x];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int slot = 0; slot < kBlock; ++slot) {
        const int pair = sorted[blockIdx.x * kBlock + slot];
        if (pair >= pairs) continue;
        const float* row = x + pair / k * xs;
        for (int f = blockIdx.y * 2 + warp; f < w.d_ff; f += 2 * gridDim.y) {
            float g = 0.f, u = 0.f;
            for (int i = lane; i < w.width; i += 32) {
                const float a = __bfloat162float(__float2bfloat16(row[i]));
                if (w.kind == VERBATIM_SWIGLU) g += a * __bfloat162float(w.gate[(e * w.d_ff + f) * w.width + i]);
                u += a * __bfloat162float(w.up[(e * w.d_ff + f) * w.width + i]);
            }
            g = warp_sum(g);
            u = warp_sum(u);
            const float r = u > 0.f || isnan(u) ? u : 0.f;
            if (lane == 0)
                inner[int64_t(pair) * w.d_ff + f] = w.kind == VERBATIM_SWIGLU ? u * (g / (1.f + __expf(-g))) : r * r;
        }
    }
}
__global__ void outer(const float* inner, const float* chosen, int64_t cs, W w, int k, float* out, int64_t os) {
    const int row = blockIdx.x;
    for (int c = threadIdx.x; c < w.width; c += blockDim.x) {
        float sum = 0.f;
        for (int j = 0; j < k; ++j) {
            const int64_t e = int(chosen[row * cs + j]);
            float acc = 0.f;
            for (int f = 0; f < w.d_ff; ++f)
                acc += __bfloat162float(__float2bfloat16(inner[(int64_t(row) * k + j) * w.d_ff + f])) *
                       __bfloat162float(w.down[(e * w.width + c) * w.d_ff + f]);
            sum += chosen[row * cs + k + j] * acc;
        }
        out[row * os + c] = sum;
    }
}
static int64_t most_sorted(const verbatim_experts& op) {
    return op.x.num_rows * op.n_chosen + op.n_experts * (kBlock - 1) + kBlock;
}
static int32_t supports(const verbatim_kernel*, verbatim_args args) {
    return args.experts->n_experts <= kMaxExperts && args.experts->x.num_rows * args.experts->n_chosen < 600;
}
static int64_t workspace_bytes(const verbatim_kernel*, verbatim_args args, int32_t) {
    const verbatim_experts& op = *args.experts;
    return 4 * (2 * most_sorted(op) + 1 + op.x.num_rows * op.n_chosen * op.d_ff);
}
static int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_experts& op = *run->args.experts;
    const auto stream = (cudaStream_t)run->device;
    const int rows = op.x.num_rows, k = op.n_chosen, most = int(most_sorted(op));
    int* sorted = (int*)run->workspace;
    int* ids = sorted + most;
    int* total = ids + most;
    float* in = (float*)(total + 1);
    W w{(const __nv_bfloat16*)op.gate,
        (const __nv_bfloat16*)op.up,
        (const __nv_bfloat16*)op.down,
        op.kind,
        int(op.d_ff),
        int(op.x.width)};
    moe_align<<<1, kThreads, 0, stream>>>(op.chosen.data, op.chosen.stride, rows, k, op.n_experts, sorted, ids, total,
                                          most);
    inner<<<dim3((most + kBlock - 1) / kBlock, 2), 64, 0, stream>>>(op.x.data, op.x.stride, sorted, ids, total, w, k,
                                                                    rows * k, in);
    outer<<<rows, 64, 0, stream>>>(in, op.chosen.data, op.chosen.stride, w, k, op.out.data, op.out.stride);
    return 0;
}

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) {
    static const verbatim_kernel kernel = {.abi = VERBATIM_KERNEL_ABI,
                                           .name = "naive",
                                           .operation = "experts",
                                           .profile = "fast",
                                           .machine = "cuda",
                                           .supports = supports,
                                           .workspace_bytes = workspace_bytes,
                                           .run = run};
    return index == 0 ? &kernel : nullptr;
}
