// A mixture's experts by groups: pairs of a row and a choice are sorted by expert (counts, a prefix, a scatter), each
// tile of pairs takes its expert's weights once, and the last kernel adds a row's choices in their order.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/sandbox/kernel.h"

namespace {

constexpr int kTileM = 4;
constexpr int kThreads = 64;
constexpr int kMaxExperts = 512;

#define CEIL_DIV(x, y) (((x) + (y)-1) / (y))

struct Sorted {
    int* sorted_ids;  // [experts * (kTileM - 1) + pairs], a pair or `pairs`
    int* expert_ids;  // [tiles]
    int* num_padded;  // [1]
};

__global__ void moe_align_kernel(const float* __restrict__ chosen, int64_t stride, int rows, int topk, int num_experts,
                                 Sorted to, int capacity) {
    extern __shared__ int counts[];
    int* const first = counts + num_experts;
    const int pairs = rows * topk;
    for (int e = threadIdx.x; e < num_experts; e += blockDim.x) counts[e] = 0;
    for (int i = threadIdx.x; i < capacity; i += blockDim.x) to.sorted_ids[i] = pairs;
    __syncthreads();
    for (int i = threadIdx.x; i < pairs; i += blockDim.x)
        atomicAdd(&counts[int(chosen[i / topk * stride + i % topk])], 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        int total = 0;
        for (int e = 0; e < num_experts; ++e) {
            first[e] = total;
            for (int t = 0; t < CEIL_DIV(counts[e], kTileM); ++t) to.expert_ids[total / kTileM + t] = e;
            total += CEIL_DIV(counts[e], kTileM) * kTileM;
        }
        *to.num_padded = total;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < pairs; i += blockDim.x)
        to.sorted_ids[atomicAdd(&first[int(chosen[i / topk * stride + i % topk])], 1)] = i;
}

template <typename scalar_t>
__device__ __forceinline__ float dot(const float* __restrict__ x, const scalar_t* __restrict__ w, int k) {
    float acc = 0.f;
    for (int i = 0; i < k; ++i) acc += __bfloat162float(__float2bfloat16(x[i])) * static_cast<float>(w[i]);
    return acc;
}

__device__ __forceinline__ float silu(float x) { return __fdividef(x, 1.f + __expf(-x)); }

// inner[pair][f], where a tile's rows are staged in shared memory.
template <bool kGated>
__global__ void __launch_bounds__(kThreads)
    up_kernel(const float* __restrict__ x, int64_t x_stride, const __nv_bfloat16* __restrict__ gate,
              const __nv_bfloat16* __restrict__ up, float* __restrict__ inner, Sorted sorted, int pairs, int topk,
              int width, int d_ff) {
    extern __shared__ float rows[];
    if (int(blockIdx.x) * kTileM >= *sorted.num_padded) return;
    const int64_t expert = sorted.expert_ids[blockIdx.x];
    for (int i = threadIdx.x; i < kTileM * width; i += kThreads) {
        const int pair = sorted.sorted_ids[blockIdx.x * kTileM + i / width];
        rows[i] = pair < pairs ? x[pair / topk * x_stride + i % width] : 0.f;
    }
    __syncthreads();
    const int f = blockIdx.y * kThreads + threadIdx.x;
    if (f >= d_ff) return;
    const int64_t at = (expert * d_ff + f) * width;
#pragma unroll
    for (int r = 0; r < kTileM; ++r) {
        const int pair = sorted.sorted_ids[blockIdx.x * kTileM + r];
        if (pair >= pairs) break;
        float value = dot(rows + r * width, up + at, width);
        if constexpr (kGated) {
            value *= silu(dot(rows + r * width, gate + at, width));
        } else {
            value = value > 0.f || isnan(value) ? value * value : 0.f;
        }
        inner[int64_t(pair) * d_ff + f] = value;
    }
}

__global__ void __launch_bounds__(kThreads)
    down_kernel(const float* __restrict__ inner, const __nv_bfloat16* __restrict__ down, float* __restrict__ partial,
                Sorted sorted, int pairs, int width, int d_ff) {
    if (int(blockIdx.x) * kTileM >= *sorted.num_padded) return;
    const int64_t expert = sorted.expert_ids[blockIdx.x];
    const int j = blockIdx.y * kThreads + threadIdx.x;
    if (j >= width) return;
    for (int r = 0; r < kTileM; ++r) {
        const int pair = sorted.sorted_ids[blockIdx.x * kTileM + r];
        if (pair < pairs)
            partial[int64_t(pair) * width + j] =
                dot(inner + int64_t(pair) * d_ff, down + (expert * width + j) * d_ff, d_ff);
    }
}

template <int kTopK>
__global__ void moe_sum_kernel(float* __restrict__ out, int64_t out_stride, const float* __restrict__ chosen,
                               int64_t chosen_stride, const float* __restrict__ partial, int topk, int width) {
    const int n = kTopK > 0 ? kTopK : topk;
    const float* const weights = chosen + blockIdx.x * chosen_stride + n;
    for (int j = threadIdx.x; j < width; j += blockDim.x) {
        float sum = 0.f;
#pragma unroll
        for (int i = 0; i < n; ++i) sum += weights[i] * partial[(int64_t(blockIdx.x) * n + i) * width + j];
        out[blockIdx.x * out_stride + j] = sum;
    }
}

int64_t capacity_of(const verbatim_experts& op) { return op.x.num_rows * op.n_chosen + op.n_experts * (kTileM - 1); }

int64_t workspace_bytes(const verbatim_kernel*, verbatim_args args, int32_t) {
    const verbatim_experts& op = *args.experts;
    const int64_t pairs = op.x.num_rows * op.n_chosen, capacity = capacity_of(op);
    return 4 * (pairs * (op.d_ff + op.out.width) + capacity + CEIL_DIV(capacity, kTileM) + 1);
}

int32_t supports(const verbatim_kernel*, verbatim_args args) {
    return args.experts->n_experts <= kMaxExperts && args.experts->x.width <= 2048;
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_experts& op = *run->args.experts;
    const auto stream = static_cast<cudaStream_t>(run->device);
    const int rows = op.x.num_rows, topk = op.n_chosen, pairs = rows * topk, width = op.x.width, d_ff = op.d_ff;
    if (rows == 0) return 0;
    const int capacity = capacity_of(op), tiles = CEIL_DIV(capacity, kTileM);
    float* const inner = static_cast<float*>(run->workspace);
    float* const partial = inner + int64_t(pairs) * d_ff;
    int* const ids = reinterpret_cast<int*>(partial + int64_t(pairs) * width);
    const Sorted sorted{ids, ids + capacity, ids + capacity + tiles};
    moe_align_kernel<<<1, 128, 2 * op.n_experts * sizeof(int), stream>>>(op.chosen.data, op.chosen.stride, rows, topk,
                                                                         op.n_experts, sorted, capacity);
    const auto* const gate = reinterpret_cast<const __nv_bfloat16*>(op.gate);
    const auto* const up = reinterpret_cast<const __nv_bfloat16*>(op.up);
    const auto* const down = reinterpret_cast<const __nv_bfloat16*>(op.down);
    const dim3 up_grid(tiles, CEIL_DIV(d_ff, kThreads)), down_grid(tiles, CEIL_DIV(width, kThreads));
    const size_t bytes = kTileM * width * sizeof(float);
    if (op.kind == VERBATIM_SWIGLU)
        up_kernel<true><<<up_grid, kThreads, bytes, stream>>>(op.x.data, op.x.stride, gate, up, inner, sorted, pairs,
                                                              topk, width, d_ff);
    else
        up_kernel<false><<<up_grid, kThreads, bytes, stream>>>(op.x.data, op.x.stride, nullptr, up, inner, sorted,
                                                               pairs, topk, width, d_ff);
    down_kernel<<<down_grid, kThreads, 0, stream>>>(inner, down, partial, sorted, pairs, width, d_ff);
#define LAUNCH_MOE_SUM(TOPK)                                                                                        \
    case TOPK:                                                                                                      \
        moe_sum_kernel<TOPK><<<rows, 64, 0, stream>>>(op.out.data, op.out.stride, op.chosen.data, op.chosen.stride, \
                                                      partial, topk, width);                                        \
        break;
    switch (topk) {
        LAUNCH_MOE_SUM(1)
        LAUNCH_MOE_SUM(2)
        LAUNCH_MOE_SUM(4)
        default:
            moe_sum_kernel<0><<<rows, 64, 0, stream>>>(op.out.data, op.out.stride, op.chosen.data, op.chosen.stride,
                                                       partial, topk, width);
    }
#undef LAUNCH_MOE_SUM
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "experts",
    .profile = "fast",
    .machine = "cuda",
    .supports = supports,
    .workspace_bytes = workspace_bytes,
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
