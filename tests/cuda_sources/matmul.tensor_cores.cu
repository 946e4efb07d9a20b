// A matmul on tensor cores as GEMM libraries for Ampere have it: tiles of bf16 in shared memory, two stages of
// cp.async, ldmatrix and mma.sync. Accumulators start again every 512 elements of K, so that it has tensor.sm90's bits.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/sandbox/kernel.h"

namespace {

constexpr int kBlockM = 32;
constexpr int kBlockN = 32;
constexpr int kBlockK = 32;
constexpr int kPad = 8;  // bf16, against bank conflicts
constexpr int kThreads = 64;
constexpr int kChunk = 512;

__device__ __forceinline__ void cp_async_16(uint32_t smem, const void* gmem, int bytes) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(smem), "l"(gmem), "r"(bytes));
}
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;\n" ::); }
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending));
}

__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], uint32_t smem) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(smem));
}

__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,  %1,  %2,  %3},"
        "{%4,  %5,  %6,  %7},"
        "{%8,  %9},"
        "{%0,  %1,  %2,  %3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

using Tile = __nv_bfloat16[kBlockK + kPad];

// The activations are rounded on the way to shared memory.
__device__ void load_x(Tile* tile, const float* x, int64_t x_stride, float multiplier, int m0, int k0, int num_rows,
                       int k) {
    for (int i = threadIdx.x; i < kBlockM * kBlockK; i += kThreads) {
        const int row = i / kBlockK, col = i % kBlockK;
        const bool inside = m0 + row < num_rows && k0 + col < k;
        const float value = inside ? x[(m0 + row) * x_stride + k0 + col] * multiplier : 0.0f;
        tile[row][col] = __float2bfloat16(fabsf(value) < 0x1p-56f ? 0.0f : value);
    }
}

__device__ void load_weight(Tile* tile, const __nv_bfloat16* weight, int n0, int k0, int n, int k, bool aligned) {
    for (int i = threadIdx.x; i < kBlockN * kBlockK / 8; i += kThreads) {
        const int row = i / (kBlockK / 8), col = i % (kBlockK / 8) * 8;
        const int left = n0 + row < n ? max(0, min(8, k - k0 - col)) : 0;
        const __nv_bfloat16* from = left > 0 ? weight + int64_t(n0 + row) * k + k0 + col : weight;
        if (aligned) {
            cp_async_16(__cvta_generic_to_shared(&tile[row][col]), from, left * 2);
        } else {
            for (int j = 0; j < 8; ++j) tile[row][col + j] = j < left ? from[j] : __nv_bfloat16(0.0f);
        }
    }
}

__global__ void __launch_bounds__(kThreads)
    matmul_kernel(float* __restrict__ out, const float* __restrict__ x, const __nv_bfloat16* __restrict__ weight,
                  const float* __restrict__ bias, int64_t out_stride, int64_t x_stride, float multiplier, int num_rows,
                  int n, int k, bool aligned) {
    __shared__ __align__(16) __nv_bfloat16 x_tile[2][kBlockM][kBlockK + kPad];
    __shared__ __align__(16) __nv_bfloat16 w_tile[2][kBlockN][kBlockK + kPad];

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int m0 = blockIdx.y * kBlockM, n0 = blockIdx.x * kBlockN;
    const int num_tiles = (k + kBlockK - 1) / kBlockK;
    float acc[4][4] = {}, total[4][4] = {};

    auto load = [&](int tile) {
        const int stage = tile & 1;
        load_weight(w_tile[stage], weight, n0, tile * kBlockK, n, k, aligned);
        load_x(x_tile[stage], x, x_stride, multiplier, m0, tile * kBlockK, num_rows, k);
    };

    load(0);
    cp_async_commit();
    for (int tile = 0; tile < num_tiles; ++tile) {
        if (tile + 1 < num_tiles) load(tile + 1);
        cp_async_commit();
        cp_async_wait<1>();
        __syncthreads();

        const int stage = tile & 1;
#pragma unroll
        for (int kk = 0; kk < kBlockK; kk += 16) {
            uint32_t a[4], b[2][4];
            ldmatrix_x4(a, __cvta_generic_to_shared(&x_tile[stage][warp * 16 + lane % 16][kk + lane / 16 * 8]));
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                ldmatrix_x4(b[j], __cvta_generic_to_shared(
                                      &w_tile[stage][j * 16 + lane / 16 * 8 + lane % 8][kk + lane / 8 % 2 * 8]));
            }
#pragma unroll
            for (int j = 0; j < 4; ++j) mma_m16n8k16(acc[j], a, b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }

        if ((tile + 1) * kBlockK % kChunk == 0 || tile + 1 == num_tiles) {
            for (int j = 0; j < 4; ++j) {
                for (int i = 0; i < 4; ++i) {
                    total[j][i] += acc[j][i];
                    acc[j][i] = 0.0f;
                }
            }
        }
        __syncthreads();
    }

    for (int j = 0; j < 4; ++j) {
        for (int i = 0; i < 4; ++i) {
            const int row = m0 + warp * 16 + lane / 4 + i / 2 * 8, col = n0 + j * 8 + lane % 4 * 2 + i % 2;
            if (row >= num_rows || col >= n) continue;
            out[row * out_stride + col] = bias != nullptr ? total[j][i] + bias[col] : total[j][i];
        }
    }
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_matmul& op = *run->args.matmul;
    const int k = int(op.x.width), n = int(op.out.width), rows = int(op.out.num_rows);
    const bool aligned = k % 8 == 0 && reinterpret_cast<uintptr_t>(op.weight) % 16 == 0;
    const dim3 grid((n + kBlockN - 1) / kBlockN, (rows + kBlockM - 1) / kBlockM);
    matmul_kernel<<<grid, kThreads>>>(op.out.data, op.x.data, reinterpret_cast<const __nv_bfloat16*>(op.weight),
                                      op.bias, op.out.stride, op.x.stride, op.in_multiplier, rows, n, k, aligned);
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
