#include "tests/benchmarks/device_copy.h"

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace verbatim::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kVectors = 4;  // of 16 bytes, that a thread has under way at once
constexpr int kFirstRounds = 20;
constexpr int kRounds = kFirstRounds + 41;

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

// Median milliseconds of what `run` asks for; the first rounds are for the clocks to rise.
template <typename Run>
cudaError_t median_of(cudaEvent_t begin, cudaEvent_t end, const Run& run, double& seconds) {
    std::vector<float> times;
    for (int round = 0; round < kRounds; ++round) {
        cudaEventRecord(begin);
        if (const auto status = run(); status != cudaSuccess) return status;
        cudaEventRecord(end);
        if (const auto status = cudaEventSynchronize(end); status != cudaSuccess) return status;
        float took = 0;
        if (const auto status = cudaEventElapsedTime(&took, begin, end); status != cudaSuccess) return status;
        if (round >= kFirstRounds) times.push_back(took);
    }
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    seconds = times[times.size() / 2] * 1e-3;
    return cudaGetLastError();
}

// Two events and memory of the device, for as long as it lives.
struct Bench {
    Bench() {
        keep(cudaEventCreate(&begin));
        keep(cudaEventCreate(&end));
    }
    Bench(const Bench&) = delete;
    Bench& operator=(const Bench&) = delete;
    ~Bench() {
        for (void* memory : arrays) cudaFree(memory);
        if (end != nullptr) cudaEventDestroy(end);
        if (begin != nullptr) cudaEventDestroy(begin);
    }
    void* allocate(size_t bytes) {
        void* memory = nullptr;
        if (status == cudaSuccess) keep(cudaMalloc(&memory, bytes));
        arrays.push_back(memory);
        return memory;
    }
    void keep(cudaError_t told) {
        if (status == cudaSuccess) status = told;
    }
    [[nodiscard]] std::string failure() const { return status == cudaSuccess ? "" : cudaGetErrorString(status); }

    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    std::vector<void*> arrays;
    cudaError_t status = cudaSuccess;
};

// bf16 of about one size, of signs and digits that vary (splitmix64).
__global__ void fill_random(uint16_t* values, size_t count, uint64_t seed) {
    const size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x;
    if (i >= count) return;
    uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    values[i] = static_cast<uint16_t>(((z ^ (z >> 31)) & 0x80FFu) | 0x3E00u);
}
uint16_t* random_array(Bench& bench, size_t count, uint64_t seed) {
    auto* values = static_cast<uint16_t*>(bench.allocate(2 * count));
    if (bench.status != cudaSuccess) return nullptr;
    fill_random<<<static_cast<unsigned>((count + kThreads - 1) / kThreads), kThreads>>>(values, count, seed);
    bench.keep(cudaGetLastError());
    return values;
}

// What is asked of cuBLAS, by the names that its library has (cublas_api.h of CUDA 12 and 13).
class Cublas {
public:
    Cublas() {
        for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"}) {
            if (library_ == nullptr) library_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        }
        if (library_ == nullptr) return;
        create_ = reinterpret_cast<Create>(dlsym(library_, "cublasCreate_v2"));
        destroy_ = reinterpret_cast<Destroy>(dlsym(library_, "cublasDestroy_v2"));
        gemm_ = reinterpret_cast<Gemm>(dlsym(library_, "cublasGemmEx"));
        if (create_ == nullptr || destroy_ == nullptr || gemm_ == nullptr || create_(&handle_) != 0) handle_ = nullptr;
    }
    Cublas(const Cublas&) = delete;
    Cublas& operator=(const Cublas&) = delete;
    ~Cublas() {
        if (handle_ != nullptr) destroy_(handle_);
        if (library_ != nullptr) dlclose(library_);
    }
    [[nodiscard]] bool is_installed() const { return library_ != nullptr; }
    [[nodiscard]] bool works() const { return handle_ != nullptr; }
    // out [rows, outputs] = x [rows, k] · weights [outputs, k]ᵀ; column by column.
    [[nodiscard]] bool multiply(const GemmShape& of, const uint16_t* weights, const uint16_t* x, float* out) const {
        constexpr int kPlain = 0;
        constexpr int kTransposed = 1;
        constexpr int kComputeFloat = 68;
        constexpr int kDefault = -1;
        const float one = 1;
        const float zero = 0;
        return gemm_(handle_, kTransposed, kPlain, of.outputs, of.rows, of.k, &one, weights, CUDA_R_16BF, of.k, x,
                     CUDA_R_16BF, of.k, &zero, out, CUDA_R_32F, of.outputs, kComputeFloat, kDefault) == 0;
    }

private:
    using Create = int (*)(void**);
    using Destroy = int (*)(void*);
    using Gemm = int (*)(void*, int, int, int, int, int, const void*, const void*, cudaDataType, int, const void*,
                         cudaDataType, int, const void*, void*, cudaDataType, int, int, int);
    void* library_ = nullptr;
    void* handle_ = nullptr;
    Create create_ = nullptr;
    Destroy destroy_ = nullptr;
    Gemm gemm_ = nullptr;
};

}  // namespace

std::string time_device_copy(size_t bytes, CopySeconds& seconds) {
    Bench bench;
    auto* from = static_cast<uint4*>(bench.allocate(bytes));
    auto* to = static_cast<uint4*>(bench.allocate(bytes));
    if (bench.status == cudaSuccess) bench.keep(cudaMemset(from, 1, bytes));
    if (bench.status != cudaSuccess) return bench.failure();
    const size_t count = bytes / sizeof(uint4);
    const auto blocks = static_cast<unsigned>((count + kThreads * kVectors - 1) / (kThreads * kVectors));
    const auto own = [&] { return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, nullptr); };
    const auto kernel = [&] {
        copy_kernel<<<blocks, kThreads>>>(from, to, count);
        return cudaSuccess;
    };
    bench.keep(median_of(bench.begin, bench.end, own, seconds.own));
    if (bench.status == cudaSuccess) bench.keep(median_of(bench.begin, bench.end, kernel, seconds.kernel));
    return bench.failure();
}

std::string time_library_gemm(const GemmShape& shape, double& seconds) {
    const Cublas library;
    if (!library.is_installed()) return "no cuBLAS is installed";
    if (!library.works()) return "cuBLAS does not start here";
    Bench bench;
    const auto size = [](int rows, int columns) { return static_cast<size_t>(rows) * static_cast<size_t>(columns); };
    const uint16_t* weights = random_array(bench, size(shape.outputs, shape.k), 1);
    const uint16_t* x = random_array(bench, size(shape.rows, shape.k), 2);
    auto* out = static_cast<float*>(bench.allocate(size(shape.rows, shape.outputs) * sizeof(float)));
    if (bench.status != cudaSuccess) return bench.failure();
    const auto multiply = [&] { return library.multiply(shape, weights, x, out) ? cudaSuccess : cudaErrorUnknown; };
    bench.keep(median_of(bench.begin, bench.end, multiply, seconds));
    return bench.failure();
}

}  // namespace verbatim::cuda
