// A matmul whose sum over K is divided among a fixed number of blocks: each writes its part to the workspace, and the
// last one to arrive, by a semaphore per tile, adds the parts in ascending order.
#include <cuda_bf16.h>

#include "kernels/sandbox/kernel.h"

namespace {

constexpr int kBlockN = 32;
constexpr int kRows = 4;
constexpr int kSplits = 3;

__device__ __forceinline__ float to_operand(float x) { return __bfloat162float(__float2bfloat16_rn(x)); }

__global__ void clear_semaphores(int* semaphores, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) semaphores[i] = 0;
}

__global__ void __launch_bounds__(kBlockN* kRows)
    split_k_kernel(const float* __restrict__ x, const __nv_bfloat16* __restrict__ weight,
                   const float* __restrict__ bias, float* __restrict__ out, float* __restrict__ parts,
                   int* __restrict__ semaphores, int64_t x_stride, int64_t out_stride, float multiplier, int m, int n,
                   int k) {
    __shared__ int ticket;
    const int col = blockIdx.x * kBlockN + threadIdx.x;
    const int row = blockIdx.y * kRows + threadIdx.y;
    const int per_split = (k + kSplits - 1) / kSplits;
    const int k_begin = blockIdx.z * per_split;
    const int k_end = min(k, k_begin + per_split);
    const bool is_mine = row < m && col < n;

    float acc = 0.f;
    if (is_mine) {
        for (int i = k_begin; i < k_end; ++i)
            acc += to_operand(x[row * x_stride + i] * multiplier) * __bfloat162float(weight[int64_t(col) * k + i]);
        parts[(int64_t(blockIdx.z) * m + row) * n + col] = acc;
    }
    __threadfence();
    __syncthreads();
    const int tile = blockIdx.y * gridDim.x + blockIdx.x;
    if (threadIdx.x == 0 && threadIdx.y == 0) ticket = atomicAdd(&semaphores[tile], 1);
    __syncthreads();
    if (ticket != kSplits - 1) return;
    __threadfence();
    if (is_mine) {
        float sum = 0.f;
#pragma unroll
        for (int s = 0; s < kSplits; ++s) sum += parts[(int64_t(s) * m + row) * n + col];
        out[row * out_stride + col] = bias != nullptr ? sum + bias[col] : sum;
    }
}

int64_t tiles_of(const verbatim_matmul& op) {
    return (op.out.width + kBlockN - 1) / kBlockN * ((op.x.num_rows + kRows - 1) / kRows);
}

int64_t workspace_bytes(const verbatim_kernel*, verbatim_args args, int32_t) {
    const verbatim_matmul& op = *args.matmul;
    return (tiles_of(op) + kSplits * op.x.num_rows * op.out.width) * 4;
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_matmul& op = *run->args.matmul;
    const int m = op.x.num_rows, n = op.out.width, k = op.x.width, tiles = tiles_of(op);
    int* semaphores = static_cast<int*>(run->workspace);
    float* parts = reinterpret_cast<float*>(semaphores + tiles);
    clear_semaphores<<<(tiles + 127) / 128, 128>>>(semaphores, tiles);
    const dim3 block(kBlockN, kRows);
    const dim3 grid((n + kBlockN - 1) / kBlockN, (m + kRows - 1) / kRows, kSplits);
    split_k_kernel<<<grid, block>>>(op.x.data, reinterpret_cast<const __nv_bfloat16*>(op.weight), op.bias, op.out.data,
                                    parts, semaphores, op.x.stride, op.out.stride, op.in_multiplier, m, n, k);
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "matmul",
    .profile = "fast",
    .machine = "cuda",
    .workspace_bytes = workspace_bytes,
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
