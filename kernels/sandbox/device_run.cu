// kernels/sandbox/device_run.cu: owns the program that calls a kernel of kernels/sandbox/kernel.h on a GPU: nvcc links
// it with the kernel's file. kernels/sandbox/device_race.h writes the calls and defines their file format.
//
//   device_run KERNEL CALL...     exit codes: 0 done, 2 a call cannot be read, 3 CUDA or the kernel fails
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels/sandbox/kernel.h"

namespace {

void want(bool holds, int code, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "device_run: %s\n", what);
    std::exit(code);
}
void want(cudaError_t error) { want(error == cudaSuccess, 3, cudaGetErrorString(error)); }

template <typename T>
std::vector<T> read_some(FILE* file, int64_t count) {
    std::vector<T> read(static_cast<size_t>(count));
    want(std::fread(read.data(), sizeof(T), read.size(), file) == read.size(), 2, "a call ends too early");
    return read;
}

// A tensor twice: device memory for the kernel, host memory for pack().
struct BothTensors {
    std::vector<char> host;
    char* device = nullptr;
};

void* on_device(int64_t num_bytes) {
    void* data = nullptr;
    if (num_bytes > 0) want(cudaMalloc(&data, static_cast<size_t>(num_bytes)));
    return data;
}

// The tasks that a kernel runs on CPU threads, one after another here.
void parallel(const verbatim_run*, int32_t num_tasks, void (*task)(void* mine, int32_t index), void* mine) {
    for (int32_t i = 0; i < num_tasks; ++i) task(mine, i);
}

void call(const verbatim_kernel& kernel, FILE* file) {
    const auto header = read_some<int64_t>(file, 3);  // bytes of the struct, tensors, pointers
    const auto host_args = read_some<char>(file, header[0]);
    std::vector<char> args = host_args, packed_args = host_args;
    std::vector<BothTensors> tensors;
    for (int64_t i = 0; i < header[1]; ++i) {
        const auto size = read_some<int64_t>(file, 2);  // bytes; 1 if unwritten before the call
        BothTensors tensor{read_some<char>(file, size[0]), nullptr};
        tensor.device = static_cast<char*>(on_device(size[0]));
        if (size[0] > 0 && size[1] == 0) {
            want(cudaMemcpy(tensor.device, tensor.host.data(), tensor.host.size(), cudaMemcpyHostToDevice));
        }
        tensors.push_back(std::move(tensor));
    }
    for (int64_t i = 0; i < header[2]; ++i) {
        const auto pointer = read_some<int64_t>(file, 2);  // offset in the struct, index of the tensor
        BothTensors& tensor = tensors.at(static_cast<size_t>(pointer[1]));
        char* const host = tensor.host.data();
        std::memcpy(args.data() + pointer[0], &tensor.device, sizeof tensor.device);
        std::memcpy(packed_args.data() + pointer[0], &host, sizeof host);
    }
    verbatim_args given{}, given_host{};
    given.matmul = reinterpret_cast<const verbatim_matmul*>(args.data());  // every member is a pointer to its struct
    given_host.matmul = reinterpret_cast<const verbatim_matmul*>(packed_args.data());
    if (kernel.supports != nullptr && kernel.supports(&kernel, given) == 0) return;
    verbatim_run run{};
    run.args = given;
    run.parallel = parallel;
    want(cudaDeviceGetAttribute(&run.num_threads, cudaDevAttrMultiProcessorCount, 0));
    run.workspace =
        on_device(kernel.workspace_bytes != nullptr ? kernel.workspace_bytes(&kernel, given, run.num_threads) : 0);
    void* packed = nullptr;
    if (kernel.pack != nullptr) {
        const int64_t num_bytes = kernel.packed_bytes != nullptr ? kernel.packed_bytes(&kernel, given) : 0;
        std::vector<char> host(static_cast<size_t>(num_bytes));
        kernel.pack(&kernel, given_host, host.data());
        packed = on_device(num_bytes);
        if (num_bytes > 0) want(cudaMemcpy(packed, host.data(), host.size(), cudaMemcpyHostToDevice));
        run.packed = packed;
    }
    want(kernel.run(&kernel, &run) == 0, 3, "run() fails");
    want(cudaGetLastError());
    want(cudaDeviceSynchronize());
    want(cudaFree(packed));
    want(cudaFree(run.workspace));
    for (const BothTensors& tensor : tensors) want(cudaFree(tensor.device));
}

}  // namespace

int main(int count, char** words) {
    want(count >= 2, 2, "device_run KERNEL CALL...");
    const verbatim_kernel* const kernel = verbatim_kernel_at(std::atoi(words[1]));
    want(kernel != nullptr, 2, "there is no such kernel");
    for (int i = 2; i < count; ++i) {
        FILE* const file = std::fopen(words[i], "rb");
        want(file != nullptr, 2, "a call cannot be opened");
        call(*kernel, file);
        std::fclose(file);
    }
    return 0;
}
