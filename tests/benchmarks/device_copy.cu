#include "tests/benchmarks/device_copy.h"

#include <cuda_runtime.h>

#include <algorithm>

namespace verbatim::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kVectors = 4;   // of 16 bytes, that a thread has under way at once
constexpr int kRounds = 100;  // in the first ones clocks may still rise

__global__ void copy_kernel(const uint4* from, uint4* to, size_t count) {
    const size_t stride = size_t{gridDim.x} * kThreads;
    const size_t first = size_t{blockIdx.x} * kThreads + threadIdx.x;
    for (size_t i = first; i < count; i += kVectors * stride) {
        uint4 values[kVectors];
#pragma unroll
        for (int k = 0; k < kVectors; ++k) {
            if (i + k * stride < count) values[k] = from[i + k * stride];
        }
#pragma unroll
        for (int k = 0; k < kVectors; ++k) {
            if (i + k * stride < count) to[i + k * stride] = values[k];
        }
    }
}

// Milliseconds of the quickest copy between arrays that are there.
cudaError_t best_of(const uint4* from, uint4* to, size_t count, cudaEvent_t begin, cudaEvent_t end, float& best) {
    const auto blocks = static_cast<unsigned>((count + kThreads * kVectors - 1) / (kThreads * kVectors));
    for (int round = 0; round < kRounds; ++round) {
        cudaEventRecord(begin);
        copy_kernel<<<blocks, kThreads>>>(from, to, count);
        cudaEventRecord(end);
        if (const auto status = cudaEventSynchronize(end); status != cudaSuccess) return status;
        float took = 0;
        if (const auto status = cudaEventElapsedTime(&took, begin, end); status != cudaSuccess) return status;
        best = std::min(best, took);
    }
    return cudaGetLastError();
}

}  // namespace

std::string time_device_copy(size_t bytes, double& seconds) {
    uint4* from = nullptr;
    uint4* to = nullptr;
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    float best = 1e9F;
    cudaError_t status = cudaMalloc(&from, bytes);
    if (status == cudaSuccess) status = cudaMalloc(&to, bytes);
    if (status == cudaSuccess) status = cudaMemset(from, 1, bytes);
    if (status == cudaSuccess) status = cudaEventCreate(&begin);
    if (status == cudaSuccess) status = cudaEventCreate(&end);
    if (status == cudaSuccess) status = best_of(from, to, bytes / sizeof(uint4), begin, end, best);
    if (end != nullptr) cudaEventDestroy(end);
    if (begin != nullptr) cudaEventDestroy(begin);
    cudaFree(to);
    cudaFree(from);
    seconds = best * 1e-3;
    return status == cudaSuccess ? "" : cudaGetErrorString(status);
}

}  // namespace verbatim::cuda
