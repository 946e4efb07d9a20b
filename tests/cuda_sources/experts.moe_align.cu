// Experts after an alignment of tokens to blocks: counts per expert, a scan of them padded to the block size, positions
// by atomic counters, then a grouped multiplication whose blocks know their expert, and a reduction over the chosen
// ones.
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <cub/block/block_scan.cuh>

#include "kernels/sandbox/kernel.h"

#define CEILDIV(x, y) (((x) + (y)-1) / (y))
#define CUDA_CHECK(call)                      \
    do {                                      \
        cudaError_t status_ = call;           \
        if (status_ != cudaSuccess) return 1; \
    } while (0)

namespace moe {

constexpr int kBlockM = 4;
constexpr int kAlignThreads = 256;

// One block: expert_of[b] is block b's expert, sorted_ids the entries (row * chosen + choice) with padding.
__global__ void __launch_bounds__(kAlignThreads)
    moe_align_block_size_kernel(const float* __restrict__ chosen_ids, int64_t stride, int chosen, int numel,
                                int num_experts, int* __restrict__ sorted_ids, int* __restrict__ expert_of,
                                int* __restrict__ total_tokens_post_pad) {
    using BlockScan = cub::BlockScan<int32_t, kAlignThreads>;
    extern __shared__ int32_t shared_counts[];  // [num_experts] counts, then [num_experts] cursors
    __shared__ typename BlockScan::TempStorage temp_storage;
    int32_t* const cursors = shared_counts + num_experts;
    const int tid = threadIdx.x;
    for (int i = tid; i < num_experts; i += kAlignThreads) shared_counts[i] = 0;
    __syncthreads();
    for (int i = tid; i < numel; i += kAlignThreads)
        atomicAdd(&shared_counts[int(chosen_ids[i / chosen * stride + i % chosen])], 1);
    __syncthreads();
    const int padded = tid < num_experts ? CEILDIV(shared_counts[tid], kBlockM) * kBlockM : 0;
    int begin, total;
    BlockScan(temp_storage).ExclusiveSum(padded, begin, total);
    if (tid < num_experts) {
        cursors[tid] = begin;
        for (int i = begin; i < begin + padded; i += kBlockM) expert_of[i / kBlockM] = tid;
        for (int i = begin + shared_counts[tid]; i < begin + padded; ++i) sorted_ids[i] = numel;
    }
    if (tid == 0) *total_tokens_post_pad = total;
    __syncthreads();
    for (int i = tid; i < numel; i += kAlignThreads) {
        const int expert = int(chosen_ids[i / chosen * stride + i % chosen]);
        sorted_ids[atomicAdd(&cursors[expert], 1)] = i;
    }
}

template <bool kIsGated>
__global__ void grouped_up_kernel(const float* __restrict__ x, int64_t x_stride, const uint16_t* __restrict__ gate,
                                  const uint16_t* __restrict__ up, const int* __restrict__ sorted_ids,
                                  const int* __restrict__ expert_of, const int* __restrict__ total, int numel,
                                  int chosen, int width, int d_ff, float* __restrict__ inner) {
    if (blockIdx.y * kBlockM >= *total) return;
    const int64_t expert = expert_of[blockIdx.y];
    const int column = blockIdx.x * blockDim.y + threadIdx.y;
    if (column >= d_ff) return;
    auto weight = [](const uint16_t* p) { return __bfloat162float(__ushort_as_bfloat16(*p)); };
    for (int m = 0; m < kBlockM; ++m) {
        const int id = sorted_ids[blockIdx.y * kBlockM + m];
        if (id >= numel) continue;
        const float* const row = x + id / chosen * x_stride;
        const int64_t at = (expert * d_ff + column) * width;
        float g = 0.f, u = 0.f;
        for (int k = threadIdx.x; k < width; k += 32) {
            const float a = __bfloat162float(__float2bfloat16_rn(row[k]));
            if constexpr (kIsGated) g = fmaf(a, weight(gate + at + k), g);
            u = fmaf(a, weight(up + at + k), u);
        }
#pragma unroll
        for (int lanes = 16; lanes >= 1; lanes >>= 1) {
            if constexpr (kIsGated) g += __shfl_xor_sync(~0u, g, lanes);
            u += __shfl_xor_sync(~0u, u, lanes);
        }
        if (threadIdx.x == 0) {
            const float r = u > 0.f ? u : (u != u ? u : 0.f);
            inner[int64_t(id) * d_ff + column] = kIsGated ? u * (g / (1.f + expf(-g))) : r * r;
        }
    }
}

__global__ void down_and_sum_kernel(const float* __restrict__ inner, const float* __restrict__ chosen_rows,
                                    int64_t chosen_stride, const uint16_t* __restrict__ down, int chosen, int width,
                                    int d_ff, float* __restrict__ out, int64_t out_stride) {
    const int64_t row = blockIdx.y;
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= width) return;
    const float* const ids = chosen_rows + row * chosen_stride;
    float total = 0.f;
    for (int c = 0; c < chosen; ++c) {
        const uint16_t* const w = down + (int64_t(ids[c]) * width + column) * d_ff;
        float acc = 0.f;
        for (int f = 0; f < d_ff; ++f) {
            const float a = __bfloat162float(__float2bfloat16_rn(inner[(row * chosen + c) * d_ff + f]));
            acc = fmaf(a, __bfloat162float(__ushort_as_bfloat16(w[f])), acc);
        }
        total = fmaf(ids[chosen + c], acc, total);
    }
    out[row * out_stride + column] = total;
}

}  // namespace moe

namespace {

int32_t supports(const verbatim_kernel*, verbatim_args args) { return args.experts->n_experts <= moe::kAlignThreads; }

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_experts& op = *run->args.experts;
    const auto stream = static_cast<cudaStream_t>(run->device);
    const int experts = op.n_experts, chosen = op.n_chosen, d_ff = op.d_ff, width = op.x.width;
    const int numel = op.x.num_rows * chosen;
    const int max_blocks = CEILDIV(numel, moe::kBlockM) + experts;
    int* ids = nullptr;
    float* inner = nullptr;
    CUDA_CHECK(cudaMallocAsync(&ids, (max_blocks * (moe::kBlockM + 1) + 1) * sizeof(int), stream));
    CUDA_CHECK(cudaMallocAsync(&inner, sizeof(float) * numel * d_ff, stream));
    int* const expert_of = ids + max_blocks * moe::kBlockM;
    int* const total = expert_of + max_blocks;
    moe::moe_align_block_size_kernel<<<1, moe::kAlignThreads, 2 * experts * sizeof(int32_t), stream>>>(
        op.chosen.data, op.chosen.stride, chosen, numel, experts, ids, expert_of, total);
    const dim3 block(32, 4), grid(CEILDIV(d_ff, 4), max_blocks);
    auto kernel = op.kind == VERBATIM_SWIGLU ? moe::grouped_up_kernel<true> : moe::grouped_up_kernel<false>;
    kernel<<<grid, block, 0, stream>>>(op.x.data, op.x.stride, op.gate, op.up, ids, expert_of, total, numel, chosen,
                                       width, d_ff, inner);
    moe::down_and_sum_kernel<<<dim3(CEILDIV(width, 64), op.x.num_rows), 64, 0, stream>>>(
        inner, op.chosen.data, op.chosen.stride, op.down, chosen, width, d_ff, op.out.data, op.out.stride);
    CUDA_CHECK(cudaFreeAsync(ids, stream));
    CUDA_CHECK(cudaFreeAsync(inner, stream));
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "experts",
    .profile = "fast",
    .machine = "cuda",
    .supports = supports,
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
