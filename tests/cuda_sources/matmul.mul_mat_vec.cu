// Multiplication of few columns by packed pairs: the number of columns is a template's argument, warps and rows of a
// block are constexpr functions of it, and sums of warps meet in shared memory.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/sandbox/kernel.h"

#define WARP_SIZE 32
#define GGML_UNUSED(x) (void)(x)

namespace {

static constexpr __host__ __device__ int calc_nwarps(int ncols_dst) {
    switch (ncols_dst) {
        case 1:
        case 2: return 4;
        case 3:
        case 4: return 2;
        default: return 1;
    }
}
static constexpr __host__ __device__ int calc_rows_per_block(int ncols_dst) { return ncols_dst == 1 ? 1 : 2; }

template <int width = WARP_SIZE>
static __device__ __forceinline__ float warp_reduce_sum(float x) {
#pragma unroll
    for (int offset = width / 2; offset > 0; offset >>= 1) x += __shfl_xor_sync(0xffffffff, x, offset, width);
    return x;
}

static __device__ __forceinline__ void ggml_cuda_mad(float& acc, const float2 v, const float2 u) {
    acc += v.x * u.x;
    acc += v.y * u.y;
}

template <int ncols_dst>
__launch_bounds__(calc_nwarps(ncols_dst) * WARP_SIZE, 1) static __global__
    void mul_mat_vec(const nv_bfloat16* __restrict__ x, const float* __restrict__ y, const float* __restrict__ bias,
                     float* __restrict__ dst, const float multiplier, const int ncols_x, const int nrows_x,
                     const int64_t stride_y, const int64_t stride_dst) {
    constexpr int nwarps = calc_nwarps(ncols_dst);
    constexpr int rows_per_block = calc_rows_per_block(ncols_dst);
    const int tid = WARP_SIZE * threadIdx.y + threadIdx.x;
    const int row0 = rows_per_block * blockIdx.x;
    y += int64_t(blockIdx.y) * ncols_dst * stride_y;
    dst += int64_t(blockIdx.y) * ncols_dst * stride_dst;

    float tmp[ncols_dst][rows_per_block] = {{0.0f}};
    const int pairs = ncols_x / 2;
    const bool is_even = ncols_x % 2 == 0 && reinterpret_cast<uintptr_t>(x) % sizeof(nv_bfloat162) == 0;
    for (int k2 = tid; k2 < pairs; k2 += nwarps * WARP_SIZE) {
#pragma unroll
        for (int i = 0; i < rows_per_block; ++i) {
            if (row0 + i >= nrows_x) break;
            const nv_bfloat16* const row = x + int64_t(row0 + i) * ncols_x;
            const nv_bfloat162 w = is_even ? reinterpret_cast<const nv_bfloat162*>(row)[k2]
                                           : __halves2bfloat162(row[2 * k2], row[2 * k2 + 1]);
#pragma unroll
            for (int j = 0; j < ncols_dst; ++j) {
                const float2 v = make_float2(y[j * stride_y + 2 * k2], y[j * stride_y + 2 * k2 + 1]);
                const nv_bfloat162 rounded = __floats2bfloat162_rn(v.x * multiplier, v.y * multiplier);
                ggml_cuda_mad(tmp[j][i], __bfloat1622float2(w), __bfloat1622float2(rounded));
            }
        }
    }
    if (ncols_x % 2 != 0 && tid == 0) {
        for (int i = 0; i < rows_per_block && row0 + i < nrows_x; ++i) {
            const float w = __bfloat162float(x[int64_t(row0 + i) * ncols_x + ncols_x - 1]);
            for (int j = 0; j < ncols_dst; ++j)
                tmp[j][i] += w * __bfloat162float(__float2bfloat16(y[j * stride_y + ncols_x - 1] * multiplier));
        }
    }

    __shared__ float tmp_shared[nwarps - 1 > 0 ? nwarps - 1 : 1][ncols_dst][rows_per_block][WARP_SIZE];
    if (threadIdx.y > 0) {
#pragma unroll
        for (int j = 0; j < ncols_dst; ++j) {
#pragma unroll
            for (int i = 0; i < rows_per_block; ++i) tmp_shared[threadIdx.y - 1][j][i][threadIdx.x] = tmp[j][i];
        }
    }
    __syncthreads();
    if (threadIdx.y > 0) return;
#pragma unroll
    for (int j = 0; j < ncols_dst; ++j) {
#pragma unroll
        for (int i = 0; i < rows_per_block; ++i) {
#pragma unroll
            for (int l = 0; l < nwarps - 1; ++l) tmp[j][i] += tmp_shared[l][j][i][threadIdx.x];
            tmp[j][i] = warp_reduce_sum(tmp[j][i]);
        }
        if (threadIdx.x < rows_per_block && (rows_per_block == 1 || row0 + int(threadIdx.x) < nrows_x)) {
            const float b = bias ? bias[row0 + threadIdx.x] : 0.0f;
            dst[j * stride_dst + row0 + threadIdx.x] = tmp[j][threadIdx.x] + b;
        }
    }
}

template <int ncols_dst>
void launch_mul_mat_vec(const verbatim_matmul& op, int row, int batches, int n, cudaStream_t stream) {
    constexpr int rows = calc_rows_per_block(ncols_dst);
    const dim3 block_nums((n + rows - 1) / rows, batches, 1);
    const dim3 block_dims(WARP_SIZE, calc_nwarps(ncols_dst), 1);
    mul_mat_vec<ncols_dst><<<block_nums, block_dims, 0, stream>>>(
        reinterpret_cast<const nv_bfloat16*>(op.weight), op.x.data + row * op.x.stride, op.bias,
        op.out.data + row * op.out.stride, op.in_multiplier, int(op.x.width), n, op.x.stride, op.out.stride);
}

int32_t run(const verbatim_kernel* kernel, const verbatim_run* run) {
    GGML_UNUSED(kernel);
    const verbatim_matmul& op = *run->args.matmul;
    const auto stream = static_cast<cudaStream_t>(run->device);
    const int rows = op.x.num_rows, n = op.out.width;
    if (rows / 4 > 0) launch_mul_mat_vec<4>(op, 0, rows / 4, n, stream);
    const int done = rows / 4 * 4;
    switch (rows % 4) {
        case 0: break;
        case 1: launch_mul_mat_vec<1>(op, done, 1, n, stream); break;
        case 2: launch_mul_mat_vec<2>(op, done, 1, n, stream); break;
        case 3: launch_mul_mat_vec<3>(op, done, 1, n, stream); break;
        default: return 1;
    }
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "matmul",
    .profile = "fast",
    .machine = "cuda",
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
