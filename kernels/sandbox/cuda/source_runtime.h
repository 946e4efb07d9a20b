// kernels/sandbox/cuda/source_runtime.h: owns CUDA's runtime as a `run` calls it: launches, shared memory of a kernel,
// streams, events and their operations, symbols, errors and the device's attributes. Everything runs in the order of
// the program; kernels/simt/source_streams.h has what a GPU may run at the same time. A launch with programmatic stream
// serialization waits by cudaGridDependencySynchronize or griddepcontrol.wait.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "kernels/simt/source_streams.h"
#include "kernels/simt/source_threads.h"

using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600
};
inline const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
        case cudaSuccess: return "cudaSuccess";
        case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
        case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
        default: return "cudaErrorInvalidValue";
    }
}
inline const char* cudaGetErrorString(cudaError_t error) {
    switch (error) {
        case cudaSuccess: return "no error";
        case cudaErrorMemoryAllocation: return "out of memory";
        case cudaErrorInvalidResourceHandle: return "invalid resource handle";
        default: return "invalid argument";
    }
}
enum cudaSharedMemConfig {
    cudaSharedMemBankSizeDefault = 0,
    cudaSharedMemBankSizeFourByte = 1,
    cudaSharedMemBankSizeEightByte = 2
};
enum cudaFuncCache {
    cudaFuncCachePreferNone = 0,
    cudaFuncCachePreferShared = 1,
    cudaFuncCachePreferL1 = 2,
    cudaFuncCachePreferEqual = 3
};
template <typename Kernel>
cudaError_t cudaFuncSetCacheConfig(Kernel, cudaFuncCache) {
    return cudaSuccess;  // a hint
}
enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9,  // a hint
    cudaFuncAttributeNonPortableClusterSizeAllowed = 14
};
inline cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
    constexpr int kMost = 227 << 10;
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
    if (attribute == cudaFuncAttributeNonPortableClusterSizeAllowed) {
        if (value != 0) verbatim::cuda_source::allow_large_clusters(kernel);
        return cudaSuccess;
    }
    if (value < 0 || value > kMost) return cudaErrorInvalidValue;
    verbatim::cuda_source::allow_shared(kernel, static_cast<size_t>(value));
    return cudaSuccess;
}
template <typename Result, typename... Parameters>
cudaError_t cudaFuncSetAttribute(Result (*kernel)(Parameters...), cudaFuncAttribute attribute, int value) {
    return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
// Of __constant__ and __device__ variables, by the host.
enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4
};
template <typename T>
VERBATIM_UNCHECKED cudaError_t cudaMemcpyToSymbol(const T& symbol, const void* from, size_t bytes, size_t offset = 0,
                                                  cudaMemcpyKind = cudaMemcpyHostToDevice) {
    if (offset + bytes > sizeof(T)) return cudaErrorInvalidValue;
    auto* const to = reinterpret_cast<char*>(const_cast<std::remove_cv_t<T>*>(&symbol));
    __builtin_memcpy(to + offset, from, bytes);
    return cudaSuccess;
}
template <typename T>
cudaError_t cudaMemcpyToSymbolAsync(const T& symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind kind,
                                    cudaStream_t = nullptr) {
    return cudaMemcpyToSymbol(symbol, from, bytes, offset, kind);
}
template <typename T>
VERBATIM_UNCHECKED cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, size_t bytes, size_t offset = 0,
                                                    cudaMemcpyKind = cudaMemcpyDeviceToHost) {
    if (offset + bytes > sizeof(T)) return cudaErrorInvalidValue;
    __builtin_memcpy(to, reinterpret_cast<const char*>(&symbol) + offset, bytes);
    return cudaSuccess;
}

// Operations of a stream: a thread of the device makes them, so that they are checked like a kernel's accesses.
inline cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream = nullptr) {
    verbatim::cuda_source::set_memory(to, static_cast<unsigned char>(value), bytes, stream);
    return cudaSuccess;
}
inline cudaError_t cudaMemset(void* to, int value, size_t bytes) { return cudaMemsetAsync(to, value, bytes); }
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t stream = nullptr) {
    verbatim::cuda_source::copy_memory(to, from, bytes, kind == cudaMemcpyDeviceToHost, stream);
    return cudaSuccess;
}
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, bytes, kind);
}
inline cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                                     size_t rows, cudaMemcpyKind kind, cudaStream_t stream = nullptr) {
    if (width > to_pitch || width > from_pitch) return cudaErrorInvalidValue;
    for (size_t row = 0; row < rows; ++row) {
        cudaMemcpyAsync(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch,
                        width, kind, stream);
    }
    return cudaSuccess;
}
inline cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                                size_t rows, cudaMemcpyKind kind) {
    return cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, rows, kind);
}

// --- streams and events, which are as far as what the host waits for, as if everything had ended when it asks

inline const cudaStream_t cudaStreamLegacy = nullptr;
inline const auto cudaStreamPerThread = static_cast<cudaStream_t>(verbatim::cuda_source::stream_of_thread());
enum : unsigned { cudaStreamDefault = 0, cudaStreamNonBlocking = 1 };
enum : unsigned { cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2 };
enum : unsigned { cudaEventRecordDefault = 0, cudaEventWaitDefault = 0 };
inline cudaError_t verbatim_if_handle(bool is_one) { return is_one ? cudaSuccess : cudaErrorInvalidResourceHandle; }
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
    using verbatim::cuda_source::StreamKind;
    if (flags > cudaStreamNonBlocking) return cudaErrorInvalidValue;
    *stream = static_cast<cudaStream_t>(verbatim::cuda_source::create_stream(
        flags == cudaStreamNonBlocking ? StreamKind::kNonBlocking : StreamKind::kBlocking));
    return cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
    return cudaStreamCreateWithPriority(stream, flags, 0);
}
inline cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
inline cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    return verbatim_if_handle(verbatim::cuda_source::destroy_stream(stream));
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    return verbatim_if_handle(verbatim::cuda_source::host_waits_for_stream(stream));
}
inline cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }
inline cudaError_t cudaDeviceSynchronize() { return verbatim::cuda_source::host_waits_for_all(), cudaSuccess; }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned = 0) {
    return verbatim_if_handle(verbatim::cuda_source::stream_waits(stream, event));
}
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
    *event = static_cast<cudaEvent_t>(verbatim::cuda_source::create_event());
    return cudaSuccess;
}
inline cudaError_t cudaEventCreate(cudaEvent_t* event, unsigned = 0) { return cudaEventCreateWithFlags(event, 0); }
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
    return verbatim_if_handle(verbatim::cuda_source::destroy_event(event));
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr) {
    return verbatim_if_handle(verbatim::cuda_source::record_event(event, stream));
}
inline cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream = nullptr, unsigned = 0) {
    return cudaEventRecord(event, stream);
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    return verbatim_if_handle(verbatim::cuda_source::host_waits_for_event(event));
}
inline cudaError_t cudaEventQuery(cudaEvent_t event) { return cudaEventSynchronize(event); }

// Memory that no launch has written.
template <typename T>
cudaError_t cudaMallocAsync(T** memory, size_t bytes, cudaStream_t stream) {
    *memory = static_cast<T*>(verbatim::cuda_source::allocate_in_stream(bytes, stream));
    return *memory != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}
inline cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
    if (memory == nullptr) return cudaSuccess;
    return verbatim::cuda_source::free_in_stream(memory, stream) ? cudaSuccess : cudaErrorInvalidValue;
}

template <typename T>
cudaError_t cudaMalloc(T** memory, size_t bytes) {
    *memory = static_cast<T*>(verbatim::cuda_source::allocate_for_all(bytes));
    return *memory != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}
inline cudaError_t cudaFree(void* memory) {
    if (memory == nullptr) return cudaSuccess;
    return verbatim::cuda_source::free_behind_all(memory) ? cudaSuccess : cudaErrorInvalidValue;
}

// --- the device: Hopper's limits, and as many multiprocessors as the call asks a grid to fill

enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrCooperativeLaunch = 95,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
        case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; break;
        case cudaDevAttrWarpSize: *value = 32; break;
        case cudaDevAttrMultiProcessorCount: *value = verbatim::cuda_source::num_multiprocessors(); break;
        case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
        case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
        case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = 228 << 10; break;
        case cudaDevAttrCooperativeLaunch: *value = 1; break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 227 << 10; break;
        default: return cudaErrorInvalidValue;
    }
    return cudaSuccess;
}
struct cudaDeviceProp {
    char name[256] = "the emulator";
    int major = 9, minor = 0, warpSize = 32, multiProcessorCount = 0;
    int maxThreadsPerBlock = 1024, maxThreadsPerMultiProcessor = 2048, regsPerBlock = 1 << 16;
    size_t sharedMemPerBlock = 48 << 10, sharedMemPerBlockOptin = 227 << 10, sharedMemPerMultiprocessor = 228 << 10;
};
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
    *properties = {};
    properties->multiProcessorCount = verbatim::cuda_source::num_multiprocessors();
    return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
inline cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidValue; }
inline cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
// Registers and local memory are not known, nor is the shared memory of a kernel that has not run.
struct cudaFuncAttributes {
    size_t sharedSizeBytes = 0, constSizeBytes = 0, localSizeBytes = 0;
    int maxThreadsPerBlock = 1024, numRegs = 32, ptxVersion = 90, binaryVersion = 90, cacheModeCA = 0;
    int maxDynamicSharedSizeBytes = 48 << 10, preferredShmemCarveout = -1;
};
template <typename Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, Kernel) {
    *attributes = {};
    return cudaSuccess;
}
inline cudaError_t cudaRuntimeGetVersion(int* version) { return *version = 13000, cudaSuccess; }
inline cudaError_t cudaDriverGetVersion(int* version) { return *version = 13000, cudaSuccess; }
// By threads and dynamic shared memory; registers are not known.
template <typename Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel, int threads, size_t bytes) {
    constexpr int kMostBlocks = 32, kMostThreads = 2048;
    constexpr size_t kMostBytes = 228 << 10, kReserved = 1 << 10;
    *blocks = std::min(kMostBlocks, threads > 0 ? kMostThreads / ((threads + 31) / 32 * 32) : 0);
    *blocks = std::min<int>(*blocks, kMostBytes / (bytes + kReserved));
    return cudaSuccess;
}

template <typename Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, Kernel kernel, int threads,
                                                                   size_t bytes, unsigned) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, threads, bytes);
}
template <typename Kernel, typename BytesOfThreads>
cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMem(int* grid, int* threads, Kernel kernel,
                                                           BytesOfThreads bytes_of, int most = 0) {
    constexpr int kMostThreads = 1024;
    *threads = most > 0 ? std::min(most, kMostThreads) : kMostThreads;
    int blocks = 0;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, *threads, static_cast<size_t>(bytes_of(*threads)));
    *grid = blocks * verbatim::cuda_source::num_multiprocessors();
    return cudaSuccess;
}
template <typename Kernel>
cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* threads, Kernel kernel, size_t bytes = 0, int most = 0) {
    return cudaOccupancyMaxPotentialBlockSizeVariableSMem(
        grid, threads, kernel, [bytes](int) { return bytes; }, most);
}

// --- launches by functions

enum cudaLaunchAttributeID {
    cudaLaunchAttributeIgnore = 0,
    cudaLaunchAttributeCooperative = 2,
    cudaLaunchAttributeClusterDimension = 4,
    cudaLaunchAttributeProgrammaticStreamSerialization = 6,
    cudaLaunchAttributePriority = 8
};
union cudaLaunchAttributeValue {
    int cooperative, programmaticStreamSerializationAllowed, priority;
    struct {
        unsigned x, y, z;
    } clusterDim;
};
struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    cudaLaunchAttributeValue val;
};
// Members `gridDim` and `blockDim` are written with this beginning (kernels/sandbox/cuda_source.cc).
struct cudaLaunchConfig_t {
    dim3 verbatim_gridDim, verbatim_blockDim;
    size_t dynamicSmemBytes = 0;
    cudaStream_t stream = nullptr;
    cudaLaunchAttribute* attrs = nullptr;
    unsigned numAttrs = 0;
};

namespace verbatim::cuda_source {

// The kernel's name in a call's text: of "&config, scope::kernel<float, 4>, x", behind so many commas.
inline std::string name_of_call(std::string_view text, int commas) {
    for (; commas > 0; --commas) text.remove_prefix(std::min(text.size(), text.find(',') + 1));
    const size_t begin = std::min(text.size(), text.find_first_not_of(" &("));
    std::string_view name = text.substr(begin);
    name = name.substr(0, name.find_first_of(" <,()"));
    return std::string(name.substr(name.rfind(':') + 1));
}

template <typename... Parameters>
cudaError_t launch_kernel(const char* text, bool is_cooperative, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                          void** arguments, size_t bytes = 0, cudaStream_t stream = nullptr) {
    Config config(grid, block, bytes, stream);
    config.is_cooperative = is_cooperative;
    launch_by_pointers(name_of_call(text, 0).c_str(), kernel, config, arguments,
                       std::index_sequence_for<Parameters...>());
    return cudaSuccess;
}

template <typename... Parameters, typename... Arguments>
cudaError_t launch_kernel_ex(const char* text, const cudaLaunchConfig_t* given, void (*kernel)(Parameters...),
                             Arguments&&... arguments) {
    static_assert(sizeof...(Parameters) == sizeof...(Arguments),
                  "a launch has another number of arguments than its kernel");
    Config config(given->verbatim_gridDim, given->verbatim_blockDim, given->dynamicSmemBytes, given->stream);
    for (unsigned i = 0; i < given->numAttrs; ++i) {
        const cudaLaunchAttributeValue& value = given->attrs[i].val;
        switch (given->attrs[i].id) {
            case cudaLaunchAttributeCooperative: config.is_cooperative = value.cooperative != 0; break;
            case cudaLaunchAttributeProgrammaticStreamSerialization:
                config.is_dependent = value.programmaticStreamSerializationAllowed != 0;
                break;
            case cudaLaunchAttributeClusterDimension:
                config.cluster = {value.clusterDim.x, value.clusterDim.y, value.clusterDim.z};
                break;
            default: break;  // a hint
        }
    }
    launcher(name_of_call(text, 1).c_str(), reinterpret_cast<const void*>(kernel), config, VERBATIM_CALL(kernel))(
        static_cast<std::remove_cvref_t<Parameters>>(std::forward<Arguments>(arguments))...);
    return cudaSuccess;
}

}  // namespace verbatim::cuda_source

// Casts of the kernel to a pointer are left out (kernels/sandbox/cuda_source.cc).
#define cudaLaunchKernel(...) ::verbatim::cuda_source::launch_kernel(#__VA_ARGS__, false, __VA_ARGS__)
#define cudaLaunchCooperativeKernel(...) ::verbatim::cuda_source::launch_kernel(#__VA_ARGS__, true, __VA_ARGS__)
#define cudaLaunchKernelEx(...) ::verbatim::cuda_source::launch_kernel_ex(#__VA_ARGS__, __VA_ARGS__)

inline void cudaGridDependencySynchronize(std::source_location where = std::source_location::current()) {
    verbatim::cuda_source::wait_previous(where);
}
inline void cudaTriggerProgrammaticLaunchCompletion() {}
