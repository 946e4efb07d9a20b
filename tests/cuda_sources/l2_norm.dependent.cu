// An L2 norm in two launches, of which the second may begin before the first has ended: the lengths' reciprocals, and
// the products. The grid is what the device holds, by its properties.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>

#include "kernels/sandbox/kernel.h"

namespace {

#define CHECK_CUDA(EXPR)                                                                                     \
    do {                                                                                                     \
        const cudaError_t status_ = (EXPR);                                                                  \
        if (status_ != cudaSuccess) {                                                                        \
            std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #EXPR, cudaGetErrorString(status_)); \
            return 1;                                                                                        \
        }                                                                                                    \
    } while (0)

struct Heads {
    float* x;
    float* scales;  // [rows * n_heads]
    int64_t stride;
    int rows, n_heads, dim;
    float scale;
    [[nodiscard]] __host__ __device__ int count() const { return rows * n_heads; }
    [[nodiscard]] __device__ float* head(int i) const { return x + i / n_heads * stride + int64_t(i % n_heads) * dim; }
};

template <int kLanes>
__device__ __forceinline__ float tile_sum(float value) {
#pragma unroll
    for (int offset = kLanes / 2; offset > 0; offset /= 2)
        value += __shfl_down_sync(0xffffffffu, value, offset, kLanes);
    return __shfl_sync(0xffffffffu, value, 0, kLanes);
}

template <int kThreads, int kLanes>
__global__ void __launch_bounds__(kThreads) scales_kernel(const Heads of) {
    constexpr int kTiles = kThreads / kLanes;
    const int lane = threadIdx.x % kLanes;
    for (int first = blockIdx.x * kTiles; first < of.count(); first += gridDim.x * kTiles) {
        const int i = first + threadIdx.x / kLanes;
        float sum = 0.f;
        for (int d = lane; i < of.count() && d < of.dim; d += kLanes) sum = fmaf(of.head(i)[d], of.head(i)[d], sum);
        sum = tile_sum<kLanes>(sum);
        if (i < of.count() && lane == 0) of.scales[i] = of.scale / sqrtf(sum + 1e-6f);
    }
    cudaTriggerProgrammaticLaunchCompletion();
}

template <int kThreads>
__global__ void __launch_bounds__(kThreads) products_kernel(const Heads of) {
    cudaGridDependencySynchronize();
    for (int i = blockIdx.x; i < of.count(); i += gridDim.x) {
        const float scale = of.scales[i];
        for (int d = threadIdx.x; d < of.dim; d += kThreads) of.head(i)[d] *= scale;
    }
}

int64_t workspace_bytes(const verbatim_kernel*, verbatim_args args, int32_t) {
    return args.l2_norm->x.num_rows * args.l2_norm->n_heads * sizeof(float);
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_l2_norm& op = *run->args.l2_norm;
    const Heads of{
        op.x.data, static_cast<float*>(run->workspace), op.x.stride, int(op.x.num_rows), int(op.n_heads), int(op.dim),
        op.scale};
    if (of.count() == 0) return 0;
    constexpr int kThreads = 64;
    int device = 0, processors = 0, blocks = 0;
    CHECK_CUDA(cudaGetDevice(&device));
    CHECK_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
    CHECK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, products_kernel<kThreads>, kThreads, 0));
    const auto stream = static_cast<cudaStream_t>(run->device);
    scales_kernel<kThreads, 8><<<std::min(of.count(), processors), kThreads, 0, stream>>>(of);
    CHECK_CUDA(cudaPeekAtLastError());

    cudaLaunchConfig_t config{};
    cudaLaunchAttribute attributes[1];
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3(std::min(of.count(), processors * std::min(blocks, 2)));
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = 0;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = 1;
    CHECK_CUDA(cudaLaunchKernelEx(&config, products_kernel<kThreads>, of));
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "l2_norm",
    .profile = "fast",
    .machine = "cuda",
    .workspace_bytes = workspace_bytes,
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
