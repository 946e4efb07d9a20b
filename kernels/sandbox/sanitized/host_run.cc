// kernels/sandbox/sanitized/host_run.cc: owns the program that calls a CPU kernel of kernels/sandbox/kernel.h under a
// sanitizer: g++ links it with the kernel's file. kernels/sandbox/device_race.h defines the calls' file format.
//
//   host_run KERNEL CALL...     exit codes: 0 done, 2 a call cannot be read, 3 the kernel fails; else the sanitizer's
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "kernels/sandbox/kernel.h"

namespace {

constexpr int32_t kThreads = 4;

void want(bool holds, int code, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "host_run: %s\n", what);
    std::exit(code);
}

template <typename T>
std::vector<T> read_some(FILE* file, int64_t count) {
    std::vector<T> read(static_cast<size_t>(count));
    want(std::fread(read.data(), sizeof(T), read.size(), file) == read.size(), 2, "a call ends too early");
    return read;
}

// Every thread takes the next task.
void parallel(const verbatim_run* run, int32_t num_tasks, void (*task)(void* mine, int32_t index), void* mine) {
    std::atomic<int32_t> next = 0;
    const auto work = [&] {
        for (int32_t i = next++; i < num_tasks; i = next++) task(mine, i);
    };
    std::vector<std::thread> threads;
    for (int32_t i = 0; i < run->num_threads; ++i) threads.emplace_back(work);
    for (std::thread& thread : threads) thread.join();
}

// Memory of exactly this size, so that the sanitizer knows its ends.
struct HeapBlock {
    explicit HeapBlock(int64_t num_bytes)
        : data(num_bytes > 0 ? std::malloc(static_cast<size_t>(num_bytes)) : nullptr) {
        if (data != nullptr) std::memset(data, 0xFF, static_cast<size_t>(num_bytes));
    }
    ~HeapBlock() { std::free(data); }
    HeapBlock(const HeapBlock&) = delete;
    HeapBlock& operator=(const HeapBlock&) = delete;
    void* data;
};

void call(const verbatim_kernel& kernel, FILE* file) {
    const auto header = read_some<int64_t>(file, 3);  // bytes of the struct, tensors, pointers
    std::vector<char> args = read_some<char>(file, header[0]);
    std::vector<std::vector<char>> tensors;
    for (int64_t i = 0; i < header[1]; ++i) {
        const auto size = read_some<int64_t>(file, 2);  // bytes; 1 if unwritten before the call
        tensors.push_back(read_some<char>(file, size[0]));
        tensors.back().shrink_to_fit();
    }
    for (int64_t i = 0; i < header[2]; ++i) {
        const auto pointer = read_some<int64_t>(file, 2);  // offset in the struct, index of the tensor
        char* const data = tensors.at(static_cast<size_t>(pointer[1])).data();
        std::memcpy(args.data() + pointer[0], &data, sizeof data);
    }
    verbatim_run run{};
    run.args.matmul = reinterpret_cast<const verbatim_matmul*>(args.data());  // every member points to its struct
    if (kernel.supports != nullptr && kernel.supports(&kernel, run.args) == 0) return;
    run.parallel = parallel;
    run.num_threads = kThreads;
    const HeapBlock workspace(kernel.workspace_bytes != nullptr ? kernel.workspace_bytes(&kernel, run.args, kThreads)
                                                                : 0);
    const bool packs = kernel.pack != nullptr && kernel.packed_bytes != nullptr;
    const HeapBlock packed(packs ? kernel.packed_bytes(&kernel, run.args) : 0);
    if (kernel.pack != nullptr) kernel.pack(&kernel, run.args, packed.data);
    run.workspace = workspace.data;
    run.packed = kernel.pack != nullptr ? packed.data : nullptr;
    want(kernel.run(&kernel, &run) == 0, 3, "run() fails");
}

}  // namespace

int main(int count, char** words) {
    want(count >= 2, 2, "host_run KERNEL CALL...");
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
