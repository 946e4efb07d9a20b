// A router's logits by resident blocks: each takes the next tile from a counter in device memory until there is none,
// and the last block that leaves sets it back, as persistent schedulers do. Which block has a tile changes no sum.
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/sandbox/kernel.h"

namespace {

constexpr int kWarps = 4;

#define LOAD(kind) "ld.global" kind ".f32"
#define ADDRESS(p) "l"(p)

__device__ int next_tile = 0;
__device__ unsigned int blocks_left = 0;

__device__ __forceinline__ float load_streaming(const float* p) {
    float value;
    asm volatile(LOAD(".nc.L1::no_allocate") " %0, [%1];" : "=f"(value) : ADDRESS(p));
    return value;
}
__device__ __forceinline__ float to_bf16(float v) {
    unsigned bits = __float_as_uint(v);
    if (isnan(v)) return v;
    if (fabsf(v) < 1.3877787807814457e-17f) return 0.f;
    bits += 0x7fffu + (bits >> 16 & 1u);
    return __uint_as_float(bits & 0xffff0000u);
}

__global__ void __launch_bounds__(kWarps * 32)
    router_gemm_persistent(const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ out,
                           int64_t x_stride, int64_t out_stride, int rows, int experts, int k) {
    __shared__ int tile;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int experts_tiles = (experts + kWarps - 1) / kWarps;
    const int num_tiles = rows * experts_tiles;
    while (true) {
        if (threadIdx.x == 0) tile = atomicAdd(&next_tile, 1);
        __syncthreads();
        const int mine = tile;
        __syncthreads();
        if (mine >= num_tiles) break;
        const int row = mine / experts_tiles, expert = mine % experts_tiles * kWarps + warp;
        if (expert >= experts) continue;
        float sum = 0.f;
        for (int i = lane; i < k; i += 32)
            sum = fmaf(to_bf16(load_streaming(x + row * x_stride + i)), weight[int64_t(expert) * k + i], sum);
        for (int offset = 16; offset > 0; offset >>= 1) sum += __shfl_down_sync(0xffffffff, sum, offset);
        if (lane == 0) out[row * out_stride + expert] = sum;
    }
    if (threadIdx.x == 0) {
        __threadfence();
        if (atomicInc(&blocks_left, gridDim.x - 1) == gridDim.x - 1) atomicExch(&next_tile, 0);
    }
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_router& op = *run->args.router;
    const int rows = op.x.num_rows, experts = op.out.width;
    const int tiles = rows * ((experts + kWarps - 1) / kWarps);
    router_gemm_persistent<<<std::min(tiles, run->num_threads), kWarps * 32>>>(
        op.x.data, op.weight, op.out.data, op.x.stride, op.out.stride, rows, experts, int(op.x.width));
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "router",
    .profile = "fast",
    .machine = "cuda",
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
