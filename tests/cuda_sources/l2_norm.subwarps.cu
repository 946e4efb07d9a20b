// An L2 norm of eight lanes for a head, with the mask of these lanes; the last warp has fewer heads.
#include <cuda_runtime.h>

#include "kernels/sandbox/kernel.h"

constexpr int kGroup = 8;
__device__ __forceinline__ unsigned group_mask() {
    return ((1u << kGroup) - 1) << (threadIdx.x % 32 / kGroup * kGroup);
}
template <int W>
__device__ __forceinline__ float sum_of(float v, unsigned mask) {
    if constexpr (W > 1) {
        v += __shfl_xor_sync(mask, v, W / 2, kGroup);
        return sum_of<W / 2>(v, mask);
    } else
        return v;
}
__global__ void __launch_bounds__(128) l2(float* x, int64_t stride, int heads, int dim, float scale, int64_t units) {
    __shared__ float stage[128];
    for (int64_t unit = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / kGroup; unit < units;
         unit += int64_t(gridDim.x) * blockDim.x / kGroup) {
        const unsigned mask = group_mask();
        const int lane = threadIdx.x % kGroup;
        float* const p = x + unit / heads * stride + unit % heads * dim;
        float sum = 0.f;
        for (int i = lane; i < dim; i += kGroup) sum = fmaf(p[i], p[i], sum);
        sum = sum_of<kGroup>(sum, mask);
        if (lane == 0) stage[threadIdx.x] = sqrtf(sum + 1e-6f);
        __syncwarp(mask);
        const float root = stage[threadIdx.x - lane];
        for (int i = lane; i < dim; i += kGroup) p[i] = p[i] / root * scale;
        __syncwarp(mask);
    }
}
static int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_l2_norm& op = *run->args.l2_norm;
    const int64_t units = op.x.num_rows * op.n_heads;
    const int blocks = std::min<int64_t>((units * kGroup + 127) / 128, run->num_threads);
    l2<<<blocks, 128, 0, (cudaStream_t)run->device>>>(op.x.data, op.x.stride, op.n_heads, op.dim, op.scale, units);
    return 0;
}

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) {
    static const verbatim_kernel kernel = {.abi = VERBATIM_KERNEL_ABI,
                                           .name = "naive",
                                           .operation = "l2_norm",
                                           .profile = "fast",
                                           .machine = "cuda",
                                           .run = run};
    return index == 0 ? &kernel : nullptr;
}
