// A matmul as introductions to tensor cores have it: warp matrices of 16 x 16 x 16 (wmma), tiles of bf16 in shared
// memory, two warps of a block. Accumulators start again every 512 elements of K, so that it has tensor.sm90's bits.
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <mma.h>

#include "kernels/sandbox/kernel.h"

namespace {

using namespace nvcuda;

constexpr int kTile = 16, kBlockK = 32, kPad = 8, kWarps = 2, kChunk = 512;

__global__ void wmma_kernel(float* out, const float* x, const __nv_bfloat16* weight, const float* bias,
                            int64_t out_stride, int64_t x_stride, float multiplier, int num_rows, int n, int k) {
    __shared__ alignas(32) __nv_bfloat16 x_tile[kTile][kBlockK + kPad];
    __shared__ alignas(32) __nv_bfloat16 w_tile[kWarps * kTile][kBlockK + kPad];
    __shared__ alignas(32) float sums[kWarps][kTile][kTile];
    const int m0 = blockIdx.y * kTile, n0 = blockIdx.x * kWarps * kTile, warp = threadIdx.x / warpSize;

    wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc, total;
    wmma::fill_fragment(acc, 0.0f);
    wmma::fill_fragment(total, 0.0f);
    for (int k0 = 0; k0 < k; k0 += kBlockK) {
        for (int i = threadIdx.x; i < kTile * kBlockK; i += blockDim.x) {
            const int row = i / kBlockK, col = i % kBlockK;
            const bool inside = m0 + row < num_rows && k0 + col < k;
            const float value = inside ? x[(m0 + row) * x_stride + k0 + col] * multiplier : 0.0f;
            x_tile[row][col] = __float2bfloat16(fabsf(value) < 0x1p-56f ? 0.0f : value);
        }
        for (int i = threadIdx.x; i < kWarps * kTile * kBlockK; i += blockDim.x) {
            const int row = i / kBlockK, col = i % kBlockK;
            w_tile[row][col] =
                n0 + row < n && k0 + col < k ? weight[int64_t(n0 + row) * k + k0 + col] : __float2bfloat16(0.0f);
        }
        __syncthreads();
        for (int kk = 0; kk < kBlockK; kk += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> a;
            wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::col_major> b;
            wmma::load_matrix_sync(a, &x_tile[0][kk], kBlockK + kPad);
            wmma::load_matrix_sync(b, &w_tile[warp * kTile][kk], kBlockK + kPad);
            wmma::mma_sync(acc, a, b, acc);
        }
        if ((k0 + kBlockK) % kChunk == 0 || k0 + kBlockK >= k) {
            for (int i = 0; i < acc.num_elements; ++i) {
                total.x[i] += acc.x[i];
                acc.x[i] = 0.0f;
            }
        }
        __syncthreads();
    }
    wmma::store_matrix_sync(&sums[warp][0][0], total, kTile, wmma::mem_row_major);
    __syncwarp();
    for (int i = threadIdx.x % warpSize; i < kTile * kTile; i += warpSize) {
        const int row = m0 + i / kTile, col = n0 + warp * kTile + i % kTile;
        if (row >= num_rows || col >= n) continue;
        const float sum = sums[warp][i / kTile][i % kTile];
        out[row * out_stride + col] = bias != nullptr ? sum + bias[col] : sum;
    }
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_matmul& op = *run->args.matmul;
    const int k = int(op.x.width), n = int(op.out.width), rows = int(op.out.num_rows);
    const dim3 grid((n + kWarps * kTile - 1) / (kWarps * kTile), (rows + kTile - 1) / kTile);
    wmma_kernel<<<grid, kWarps * 32>>>(op.out.data, op.x.data, reinterpret_cast<const __nv_bfloat16*>(op.weight),
                                       op.bias, op.out.stride, op.x.stride, op.in_multiplier, rows, n, k);
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "matmul",
    .profile = "tensor.sm90",
    .machine = "cuda",
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
