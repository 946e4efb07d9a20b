// tests/tools/runs/kernel/stand_in/cuda_runtime.h: owns the part of CUDA's runtime that kernels/sandbox/gpu_serve.cu
// calls, on the processor: device memory is the host's, and a launch of the program's own kernels does nothing.
// kernel_fault is the error that the next synchronisation reports, as a kernel's fault is reported on a GPU.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#define __global__

enum cudaError_t { cudaSuccess = 0, cudaErrorMemoryAllocation = 2, cudaErrorIllegalAddress = 700 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16, cudaDevAttrL2CacheSize = 38 };
struct cudaDeviceProp {
    char name[256];
};
using cudaStream_t = void*;
struct dim3 {
    explicit dim3(unsigned width) : x(width) {}
    unsigned x;
};
struct uint4 {
    uint32_t x, y, z, w;
};
struct StandInIndex {
    unsigned x = 0;
};
inline StandInIndex blockIdx, threadIdx, gridDim;
inline float __fmaf_rn(float a, float b, float c) { return a * b + c; }

inline cudaError_t kernel_fault = cudaSuccess;

inline const char* cudaGetErrorString(cudaError_t error) {
    return error == cudaErrorIllegalAddress ? "an illegal memory access was encountered" : "out of memory";
}
inline cudaError_t cudaMalloc(void** data, size_t num_bytes) {
    constexpr size_t kAlignment = 256;
    *data = std::aligned_alloc(kAlignment, (num_bytes + kAlignment - 1) / kAlignment * kAlignment);
    return *data != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}
inline cudaError_t cudaFree(void* data) {
    std::free(data);
    return cudaSuccess;
}
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t num_bytes, cudaMemcpyKind) {
    if (num_bytes > 0) std::memcpy(to, from, num_bytes);
    return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t num_bytes, cudaMemcpyKind kind) {
    return cudaMemcpy(to, from, num_bytes, kind);
}
inline cudaError_t cudaMemset(void* data, int byte, size_t num_bytes) {
    std::memset(data, byte, num_bytes);
    return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* data, int byte, size_t num_bytes) { return cudaMemset(data, byte, num_bytes); }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaDeviceSynchronize() { return kernel_fault; }
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int) {
    *value = which == cudaDevAttrMultiProcessorCount ? 4 : 1 << 16;
    return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
    std::strcpy(properties->name, "Stand-in");
    return cudaSuccess;
}
inline cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t) { return cudaSuccess; }

using cudaEvent_t = std::chrono::steady_clock::time_point*;
inline cudaError_t cudaEventCreate(cudaEvent_t* event) {
    *event = new std::chrono::steady_clock::time_point();
    return cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event) {
    *event = std::chrono::steady_clock::now();
    return cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return kernel_fault; }
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
    constexpr float kLeast = 1e-4F;
    *milliseconds = std::max(kLeast, std::chrono::duration<float, std::milli>(*end - *begin).count());
    return cudaSuccess;
}
