// What kernels/sandbox/cuda/source.h says that it takes, asserted by the kernel itself, before a plain RMSNorm.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cub/cub.cuh>

#include "kernels/sandbox/kernel.h"

namespace cg = cooperative_groups;

__constant__ float table[4] = {1.0f, 2.0f, 4.0f, 8.0f};

__device__ void check_numbers() {
    assert(float(__float2half(1.0f / 3.0f)) == 0.333251953125f);
    assert(__bfloat162float(__float2bfloat16(1.0f / 3.0f)) == 0.333984375f);
    assert(__float2bfloat16(1.00390625f).bits == 0x3F80);  // a tie, to even
    const half2 sum = __hadd2(half2{half(1.0f), half(2.0f)}, half2{half(0.5f), half(2048.0f)});
    assert(float(sum.x) == 1.5f && float(sum.y) == 2050.0f);
    const float2 pair = __bfloat1622float2(__float22bfloat162_rn(make_float2(1.0f, -3.0f)));
    assert(pair.x == 1.0f && pair.y == -3.0f);
    assert(rsqrtf(4.0f) == 0.5f && __fmaf_rn(2.0f, 3.0f, 1.0f) == 7.0f && table[2] == 4.0f);
    assert(__popc(0xF0u) == 4 && __ffs(8) == 4 && __clz(1) == 31 && warpSize == 32);
}

__device__ void check_warps(int* counts) {
    const int lane = threadIdx.x % 32;
    assert(__shfl_sync(0xffffffff, lane, 5) == 5);
    assert(__shfl_up_sync(0xffffffff, lane, 1) == (lane == 0 ? 0 : lane - 1));
    assert(__shfl_down_sync(0xffffffff, lane, 3, 8) == (lane % 8 < 5 ? lane + 3 : lane));
    assert(__ballot_sync(0xffffffff, lane < 4) == 0xF);
    assert(__any_sync(0xffffffff, lane == 31) && !__all_sync(0xffffffff, lane == 31));
    const auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    assert(tile.thread_rank() == unsigned(lane % 8) && tile.any(tile.thread_rank() == 7));
    assert(cg::reduce(tile, 1, cg::plus<int>()) == 8);
    __shared__ cub::WarpReduce<int>::TempStorage storage[2];
    const int most = cub::WarpReduce<int>(storage[threadIdx.x / 32]).Reduce(lane, cub::Max());
    assert(lane != 0 || most == 31);
    atomicAdd(&counts[0], 1);
    atomicMax(&counts[1], int(threadIdx.x));
    __syncthreads();
    assert(counts[0] == 64 && counts[1] == 63);
}

__global__ void norm_kernel(float* out, const float* x, const float* weight, int64_t out_stride, int64_t stride,
                            float eps, int width) {
    extern __shared__ __align__(16) float partials[];
    __shared__ int counts[2], unused;
    if (threadIdx.x < 2) counts[threadIdx.x] = 0;
    cg::this_thread_block().sync();
    check_numbers();
    check_warps(counts);
    float sum = 0.0f;
    for (int i = threadIdx.x; i < width; i += 64) sum += x[blockIdx.x * stride + i] * x[blockIdx.x * stride + i];
    partials[threadIdx.x] = sum;
    __syncthreads();
    for (int half_size = 32; half_size > 0; half_size /= 2) {
        if (threadIdx.x < half_size) partials[threadIdx.x] += partials[threadIdx.x + half_size];
        __syncthreads();
    }
    const float scale = 1.0f / sqrtf(partials[0] / width + eps);
    for (int i = threadIdx.x; i < width; i += 64) {
        out[blockIdx.x * out_stride + i] = x[blockIdx.x * stride + i] * scale * weight[i];
    }
    (void)unused;
}

static int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_rms_norm& op = *run->args.rms_norm;
    norm_kernel<<<op.x.num_rows, 64, 64 * sizeof(float)>>>(op.out.data, op.x.data, op.weight, op.out.stride,
                                                           op.x.stride, op.eps, int(op.x.width));
    return 0;
}

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) {
    static const verbatim_kernel kernel = {
        VERBATIM_KERNEL_ABI, "features", "rms_norm", "fast", "cuda", nullptr, nullptr, nullptr, nullptr, nullptr, run};
    return index == 0 ? &kernel : nullptr;
}
