// An RMSNorm whose sums come from two streams, as engines overlap small launches: a side stream takes the right halves
// of the rows, events fork and join it, and the sums are in memory of the stream's pool.
#include <cuda_runtime.h>

#include "kernels/sandbox/kernel.h"

constexpr int kThreads = 64;

__device__ __forceinline__ float block_sum(float value) {
    __shared__ float warps[kThreads / 32];
    for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffffu, value, lanes);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = 0.0f;
    for (int warp = 0; warp < kThreads / 32; ++warp) sum += warps[warp];
    return sum;
}

__global__ void add_squares(float* sums, const float* x, int64_t stride, int begin, int end) {
    float sum = 0.0f;
    for (int i = begin + threadIdx.x; i < end; i += kThreads) {
        const float value = x[blockIdx.x * stride + i];
        sum = fmaf(value, value, sum);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) sums[blockIdx.x] += sum;
}

__global__ void normalise(float* out, const float* x, const float* weight, const float* left, const float* right,
                          int64_t out_stride, int64_t stride, float eps, int width) {
    const float sum = left[blockIdx.x] + right[blockIdx.x];
    const float scale = rsqrtf(sum / width + eps);
    for (int i = threadIdx.x; i < width; i += kThreads)
        out[blockIdx.x * out_stride + i] = x[blockIdx.x * stride + i] * scale * weight[i];
}

static int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_rms_norm& op = *run->args.rms_norm;
    const auto stream = static_cast<cudaStream_t>(run->device);
    const int width = int(op.x.width), half = width / 2;
    const unsigned rows = op.x.num_rows;
    cudaStream_t side;
    cudaEvent_t forked, joined;
    if (cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking) != cudaSuccess) return 1;
    if (cudaEventCreateWithFlags(&forked, cudaEventDisableTiming) != cudaSuccess) return 1;
    if (cudaEventCreateWithFlags(&joined, cudaEventDisableTiming) != cudaSuccess) return 1;
    float* sums = nullptr;
    if (cudaMallocAsync(&sums, 2 * rows * sizeof(float), stream) != cudaSuccess) return 1;
    cudaMemsetAsync(sums, 0, 2 * rows * sizeof(float), stream);
    cudaEventRecord(forked, stream);
    cudaStreamWaitEvent(side, forked, 0);
    add_squares<<<rows, kThreads, 0, side>>>(sums + rows, op.x.data, op.x.stride, half, width);
    cudaEventRecord(joined, side);
    add_squares<<<rows, kThreads, 0, stream>>>(sums, op.x.data, op.x.stride, 0, half);
    cudaStreamWaitEvent(stream, joined, 0);
    normalise<<<rows, kThreads, 0, stream>>>(op.out.data, op.x.data, op.weight, sums, sums + rows, op.out.stride,
                                             op.x.stride, op.eps, width);
    cudaFreeAsync(sums, stream);
    cudaEventDestroy(forked);
    cudaEventDestroy(joined);
    cudaStreamDestroy(side);
    return cudaGetLastError() == cudaSuccess ? 0 : 1;
}

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) {
    static const verbatim_kernel kernel = {.abi = VERBATIM_KERNEL_ABI,
                                           .name = "naive",
                                           .operation = "rms_norm",
                                           .profile = "fast",
                                           .machine = "cuda",
                                           .run = run};
    return index == 0 ? &kernel : nullptr;
}
