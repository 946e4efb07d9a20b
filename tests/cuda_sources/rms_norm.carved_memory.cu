// An RMSNorm whose dynamic shared memory is cut into arrays of several types, with a reduction by volatile pointers
// as kernels from before warp shuffles have it; warps add their sums one after another, in order, under a turn.
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/sandbox/kernel.h"

namespace {

constexpr int kThreads = 128;

__device__ void warp_reduce(volatile double* sums, int lane) {
    for (int offset = 16; offset > 0; offset >>= 1) {
        if (lane < offset) sums[lane] += sums[lane + offset];
        __syncwarp();
    }
}

template <typename T>
__device__ T* carve(unsigned char*& from, int count) {
    T* const array = reinterpret_cast<T*>(from);
    from += count * sizeof(T);
    return array;
}

__global__ void rms_norm_carved(const float* x, const float* weight, float* out, int64_t x_stride, int64_t out_stride,
                                int width, float eps) {
    extern __shared__ unsigned char memory[];
    unsigned char* next = memory;
    double* const sums = carve<double>(next, kThreads);
    float* const row = carve<float>(next, width);
    volatile int* const turn = carve<int>(next, 1);
    __shared__ float total;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
        *turn = 0;
        total = 0;
    }
    double sum = 0;
    for (int i = threadIdx.x; i < width; i += kThreads) {
        row[i] = x[blockIdx.x * x_stride + i];
        sum += double(row[i]) * row[i];
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    warp_reduce(sums + 32 * warp, lane);
    for (int w = 0; w < kThreads / 32; ++w) {
        if (w == warp && lane == 0) {
            total += float(sums[threadIdx.x]);
            *turn = w + 1;
        }
        __syncthreads();
    }
    assert(*turn == kThreads / 32);
    const float scale = 1.f / sqrtf(total / width + eps);
    for (int i = threadIdx.x; i < width; i += kThreads) out[blockIdx.x * out_stride + i] = row[i] * scale * weight[i];
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_rms_norm& op = *run->args.rms_norm;
    const int bytes = kThreads * sizeof(double) + op.x.width * sizeof(float) + sizeof(int);
    if (bytes > 48 << 10) cudaFuncSetAttribute(rms_norm_carved, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    rms_norm_carved<<<op.x.num_rows, kThreads, bytes>>>(op.x.data, op.weight, op.out.data, op.x.stride, op.out.stride,
                                                        op.x.width, op.eps);
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "rms_norm",
    .profile = "fast",
    .machine = "cuda",
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
