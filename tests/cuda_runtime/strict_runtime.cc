#include "tests/cuda_runtime/strict_runtime.h"

#include <cuda_runtime.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "tests/cuda_runtime/fat_binary.h"

namespace verbatim::cuda::strict_runtime {
namespace {

constexpr unsigned kMostBlocks = 65535;  // of a grid in y and z
constexpr unsigned kMostThreads = 1024;  // of a block
constexpr int kThreadsOfProcessor = 2048;
constexpr size_t kSharedUnasked = 48 << 10;  // bytes
constexpr size_t kMostShared = 227 << 10;    // bytes of a block of capability 9.0
constexpr std::string_view kWait = "cudaStreamSynchronize";

using Memory = std::map<const std::byte*, std::vector<std::byte>>;  // by first byte

struct Copy {
    std::byte* to;
    const std::byte* from;
    const std::byte* host;       // one of the two; null: both are on the device
    std::vector<std::byte> was;  // at `host`, when it was asked for; without a `from`: what is written
    bool is_pinned;
};
struct Stream {
    bool is_captured = false;
    bool is_broken = false;    // its capture, by a call that is forbidden
    int64_t num_recorded = 0;  // kernels
    std::vector<Copy> under_way;
};
struct Process {
    Machine machine;
    Counts counts;
    std::vector<std::string> violations;
    Memory device, pinned;
    std::map<cudaStream_t, Stream> streams;
    std::map<cudaGraph_t, int64_t> graphs;           // their kernels
    std::map<cudaGraphExec_t, int64_t> executables;  // their kernels
    std::map<const void*, size_t> shared_bytes;      // of kernels for which they were asked
    int64_t num_allocations = 0;
    cudaError_t untold = cudaSuccess;  // of a kernel
    cudaError_t sticky = cudaSuccess;
};
Process& process() {
    static Process one;
    return one;
}
bool works() { return process().sticky == cudaSuccess; }

// Of objects, for as long as the program runs.
struct Kernels {
    std::map<std::string, size_t> static_shared;             // bytes by mangled name
    std::map<const void*, size_t> static_shared_of_kernels;  // by the address that a launch names
};
Kernels& kernels() {
    static Kernels all;
    return all;
}
size_t static_shared_bytes(const void* kernel) {
    const auto found = kernels().static_shared_of_kernels.find(kernel);
    return found == kernels().static_shared_of_kernels.end() ? 0 : found->second;
}

struct Breach {
    std::string what;
    cudaError_t status;
};
void require(bool holds, std::string what, cudaError_t status = cudaErrorInvalidValue) {
    if (!holds) throw Breach{std::move(what), status};
}

// R2, before a call that does not wait. What it finds it forgets: its owner may take it away.
void expect_nothing_pageable(std::string_view call) {
    for (auto& [handle, stream] : process().streams) {
        if (std::erase_if(stream.under_way, [](const Copy& copy) { return !copy.is_pinned; }) == 0) continue;
        process().violations.push_back(fmt::format("{}: a copy of memory that is not pinned is under way", call));
    }
}

// Every call: `body` gives its status, or throws a Breach.
template <typename Body>
cudaError_t answer(std::string_view call, const Body& body) {
    cudaError_t status = cudaSuccess;
    if (call != kWait) expect_nothing_pageable(call);
    try {
        status = body();
    } catch (const Breach& breach) {
        process().violations.push_back(fmt::format("{}: {}", call, breach.what));
        status = breach.status;
    }
    return works() ? status : process().sticky;
}

// R3: of calls that break a capture.
void require_no_capture() {
    bool is_captured = false;
    for (auto& [handle, stream] : process().streams) {
        stream.is_broken |= stream.is_captured;
        is_captured |= stream.is_captured;
    }
    require(!is_captured, "while a stream is captured", cudaErrorStreamCaptureUnsupported);
}

template <typename Handle, typename Value>
Value& at(std::map<Handle, Value>& all, Handle handle) {
    const auto found = all.find(handle);
    require(found != all.end(), "what is not there", cudaErrorInvalidResourceHandle);
    return found->second;
}
// Under a handle that was never there before.
template <typename Handle, typename Value>
cudaError_t create(std::map<Handle, Value>& all, Handle* handle, Value value) {
    static uintptr_t last = 0;
    if (!works()) return cudaSuccess;
    *handle = reinterpret_cast<Handle>(++last);
    all.emplace(*handle, std::move(value));
    return cudaSuccess;
}

template <typename Handle, typename Value>
cudaError_t destroy(std::map<Handle, Value>& all, Handle handle) {
    at(all, handle);
    all.erase(handle);
    return cudaSuccess;
}

// From `address` on to the end of the block that it lies in; 0: in none.
size_t room_at(const Memory& memory, const void* address) {
    const auto* byte = static_cast<const std::byte*>(address);
    const auto next = memory.upper_bound(byte);
    if (next == memory.begin()) return 0;
    const auto& [first, block] = *std::prev(next);
    return static_cast<size_t>(std::max<ptrdiff_t>(first + block.size() - byte, 0));
}

cudaError_t allocate(Memory& memory, void** address, size_t bytes) {
    require_no_capture();
    require(bytes > 0, "of no bytes");
    if (!works()) return cudaSuccess;
    if (++process().num_allocations == process().machine.fail_at_allocation) return cudaErrorMemoryAllocation;
    std::vector<std::byte> block(bytes);
    *address = block.data();
    memory.emplace(block.data(), std::move(block));
    return cudaSuccess;
}

// Whether something works or not: what is given back is no more the caller's.
cudaError_t release(Memory& memory, void* address) {
    require_no_capture();
    if (address == nullptr) return cudaSuccess;
    const auto* first = static_cast<std::byte*>(address);
    const auto block = memory.find(first);
    require(block != memory.end(), "what is not allocated");
    const auto lies_within = [&](const std::byte* byte) {
        return first <= byte && byte < first + block->second.size();
    };
    for (const auto& [handle, stream] : process().streams) {
        for (const Copy& copy : stream.under_way) {
            require(!lies_within(copy.to) && !lies_within(copy.from), "memory that a copy under way needs");
        }
    }
    memory.erase(block);
    return cudaSuccess;
}

// R5, of what waits.
void meet_errors() {
    if (process().untold == cudaSuccess) return;
    process().sticky = std::exchange(process().untold, cudaSuccess);
    for (auto& [handle, stream] : process().streams) stream.under_way.clear();
}

cudaError_t run(int64_t num_kernels) {
    if (!works()) return cudaSuccess;
    const int64_t before = std::exchange(process().counts.kernels, process().counts.kernels + num_kernels);
    const int64_t failing = process().machine.fail_at_kernel;
    if (before < failing && failing <= before + num_kernels) process().untold = cudaErrorIllegalAddress;
    if (process().machine.launches_wait) meet_errors();
    return cudaSuccess;
}

// A copy without host memory: of `from` when it lands, or of `bytes` where `from` is null.
Copy on_device(void* to, const void* from, std::vector<std::byte> bytes) {
    return {static_cast<std::byte*>(to), static_cast<const std::byte*>(from), nullptr, std::move(bytes), true};
}

// R2.
void land(const std::vector<Copy>& copies) {
    for (const Copy& copy : copies) {
        const bool is_kept =
            copy.host == nullptr || !copy.is_pinned || std::memcmp(copy.host, copy.was.data(), copy.was.size()) == 0;
        require(is_kept, "pinned memory was written while a copy of it was under way");
    }
    for (const Copy& copy : copies) {
        std::memcpy(copy.to, copy.from == copy.host ? copy.was.data() : copy.from, copy.was.size());
    }
}

// R4.
void require_fit(const cudaLaunchConfig_t& config, const void* kernel) {
    const size_t asked = process().shared_bytes[kernel];
    const size_t known = static_shared_bytes(kernel);
    const auto [x, y, z] = std::tuple(config.gridDim.x, config.gridDim.y, config.gridDim.z);
    require(x > 0 && y > 0 && z > 0 && x <= INT32_MAX && y <= kMostBlocks && z <= kMostBlocks,
            fmt::format("a grid of {} x {} x {} blocks", x, y, z), cudaErrorInvalidConfiguration);
    const dim3 block = config.blockDim;
    const uint64_t num_threads = uint64_t{block.x} * block.y * block.z;
    require(num_threads > 0 && num_threads <= kMostThreads && block.z <= 64,
            fmt::format("a block of {} x {} x {} threads", block.x, block.y, block.z), cudaErrorInvalidConfiguration);
    require(known + config.dynamicSmemBytes <= std::max(kSharedUnasked, known + asked),
            fmt::format("{} bytes of shared memory beside {} that the compiler knows of, {} were asked for",
                        config.dynamicSmemBytes, known, asked));
    for (unsigned i = 0; i < config.numAttrs; ++i) {
        const bool is_dependent = config.attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization;
        const bool is_cooperative = config.attrs[i].id == cudaLaunchAttributeCooperative;
        require(
            is_cooperative || (is_dependent && process().machine.major >= 9),
            fmt::format("launch attribute {} on {}.x", static_cast<int>(config.attrs[i].id), process().machine.major));
        if (is_dependent) ++process().counts.dependents;
        const uint64_t most = process().machine.num_processors * (kThreadsOfProcessor / num_threads);
        require(!is_cooperative || uint64_t{x} * y * z <= most,
                fmt::format("{} blocks are to be there at once, the device holds {}", uint64_t{x} * y * z, most),
                cudaErrorCooperativeLaunchTooLarge);
        if (is_cooperative) ++process().counts.cooperative;
    }
}

}  // namespace

void begin_process(const Machine& machine) { process() = {.machine = machine}; }
const std::vector<std::string>& violations() { return process().violations; }
const Counts& counts() { return process().counts; }
void declare_kernel(const void* kernel, size_t static_shared_bytes) {
    kernels().static_shared_of_kernels[kernel] = static_shared_bytes;
}
int64_t num_kernels_with_static_shared() {
    return std::ranges::count_if(kernels().static_shared_of_kernels, [](const auto& one) { return one.second > 0; });
}

std::vector<std::string> left_behind() {
    std::vector<std::string> left;
    const auto add = [&](const auto& all, const char* what) {
        if (!all.empty()) left.push_back(fmt::format("{}, {} of them", what, all.size()));
    };
    add(process().device, "device memory");
    add(process().pinned, "pinned memory");
    add(process().streams, "streams");
    add(process().graphs, "graphs");
    add(process().executables, "executable graphs");
    return left;
}

}  // namespace verbatim::cuda::strict_runtime

using namespace verbatim::cuda::strict_runtime;

// --- memory and copies

cudaError_t cudaMalloc(void** memory, size_t bytes) {
    return answer("cudaMalloc", [&] { return allocate(process().device, memory, bytes); });
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
    return answer("cudaMallocHost", [&] { return allocate(process().pinned, memory, bytes); });
}
cudaError_t cudaFree(void* memory) {
    return answer("cudaFree", [&] { return release(process().device, memory); });
}
cudaError_t cudaFreeHost(void* memory) {
    return answer("cudaFreeHost", [&] { return release(process().pinned, memory); });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t handle) {
    return answer("cudaMemcpyAsync", [&] {
        require_no_capture();
        Stream& stream = at(process().streams, handle);
        if (kind == cudaMemcpyDeviceToDevice) {
            const bool fits = bytes <= room_at(process().device, from) && bytes <= room_at(process().device, to);
            require(fits, "beyond what is allocated on the device");
            if (works()) stream.under_way.push_back(on_device(to, from, std::vector<std::byte>(bytes)));
            return cudaSuccess;
        }
        const bool goes_up = kind == cudaMemcpyHostToDevice;
        require(goes_up || kind == cudaMemcpyDeviceToHost, "neither to the device nor to the host");
        require(bytes <= room_at(process().device, goes_up ? to : from), "beyond what is allocated on the device");
        const auto* host = static_cast<const std::byte*>(goes_up ? from : to);
        const size_t pinned_room = room_at(process().pinned, host);
        require(pinned_room == 0 || bytes <= pinned_room, "beyond pinned memory");
        if (!works()) return cudaSuccess;
        stream.under_way.push_back({static_cast<std::byte*>(to),
                                    static_cast<const std::byte*>(from),
                                    host,
                                    {host, host + bytes},
                                    pinned_room > 0});
        return cudaSuccess;
    });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t handle) {
    return answer("cudaMemsetAsync", [&] {
        require_no_capture();
        Stream& stream = at(process().streams, handle);
        require(bytes <= room_at(process().device, to), "beyond what is allocated on the device");
        const std::vector<std::byte> written(bytes, static_cast<std::byte>(value));
        if (works()) stream.under_way.push_back(on_device(to, nullptr, written));
        return cudaSuccess;
    });
}

// --- streams and graphs

cudaError_t cudaStreamCreate(cudaStream_t* handle) {
    return answer("cudaStreamCreate", [&] { return create(process().streams, handle, Stream{}); });
}
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    return answer("cudaStreamDestroy", [&] {
        require(!at(process().streams, handle).is_captured, "its capture is not ended");
        return destroy(process().streams, handle);
    });
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    return answer(kWait, [&] {
        ++process().counts.waits;
        require_no_capture();
        Stream& stream = at(process().streams, handle);
        meet_errors();
        land(std::exchange(stream.under_way, {}));
        return cudaSuccess;
    });
}
cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode) {
    return answer("cudaStreamBeginCapture", [&] {
        Stream& stream = at(process().streams, handle);
        require(!stream.is_captured, "a stream that is captured");
        stream.is_captured = works();
        stream.num_recorded = 0;
        return cudaSuccess;
    });
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
    return answer("cudaStreamEndCapture", [&] {
        *graph = nullptr;
        Stream& stream = at(process().streams, handle);
        const bool was_captured = std::exchange(stream.is_captured, false);
        require(was_captured || !works(), "a stream that is not captured");
        if (std::exchange(stream.is_broken, false)) return cudaErrorStreamCaptureInvalidated;
        return create(process().graphs, graph, stream.num_recorded);
    });
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
    return answer("cudaGraphInstantiate",
                  [&] { return create(process().executables, executable, at(process().graphs, graph)); });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    return answer("cudaGraphDestroy", [&] { return destroy(process().graphs, graph); });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    return answer("cudaGraphExecDestroy", [&] { return destroy(process().executables, executable); });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
    return answer("cudaGraphLaunch", [&] {
        require_no_capture();
        at(process().streams, stream);
        return run(at(process().executables, executable));
    });
}

// --- kernels

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
    return answer("cudaFuncSetAttribute", [&] {
        ++process().counts.attributes;
        require(attribute == cudaFuncAttributeMaxDynamicSharedMemorySize, "another attribute");
        require(value >= 0 && static_cast<size_t>(value) + static_shared_bytes(kernel) <= kMostShared,
                "more than a block has");
        if (works()) process().shared_bytes[kernel] = static_cast<size_t>(value);
        return cudaSuccess;
    });
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void**) {
    return answer("cudaLaunchKernelExC", [&] {
        Stream& stream = at(process().streams, config->stream);
        require_fit(*config, kernel);
        if (!stream.is_captured) return run(1);
        ++stream.num_recorded;
        return cudaSuccess;
    });
}

// --- the device

cudaError_t cudaSetDevice(int ordinal) {
    return answer("cudaSetDevice", [&] { return ordinal == 0 ? cudaSuccess : cudaErrorInvalidDevice; });
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
    *properties = {};
    std::strcpy(properties->name, "a stand-in");
    properties->major = process().machine.major;
    properties->multiProcessorCount = process().machine.num_processors;
    properties->maxThreadsPerMultiProcessor = kThreadsOfProcessor;
    properties->sharedMemPerBlockOptin = kMostShared;
    return answer("cudaGetDeviceProperties", [] { return cudaSuccess; });
}
cudaError_t cudaDeviceReset() {
    return answer("cudaDeviceReset", [] {
        const std::vector<std::string> left = left_behind();
        Process& now = process();
        ++now.counts.resets;
        now = {.machine = now.machine,
               .counts = now.counts,
               .violations = std::move(now.violations),
               .num_allocations = now.num_allocations};
        require(left.empty(), fmt::format("takes away {}", fmt::join(left, "; ")));
        return cudaSuccess;
    });
}
const char* cudaGetErrorString(cudaError_t status) {
    if (status == cudaErrorMemoryAllocation) return "out of memory";
    return status == cudaErrorIllegalAddress ? "an illegal memory access was encountered" : "another error";
}

// --- what the objects of nvcc 13 name: for when they are loaded, and for launches by <<<>>>, of which none may be
// (they do not link without __cudaPushCallConfiguration): such a launch does not return its error

extern "C" {
void** __cudaRegisterFatBinary(void* binary) {
    static void* handle = nullptr;
    kernels().static_shared.merge(static_shared_of(binary));
    return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterFunction(void**, const char* kernel, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
    const auto known = kernels().static_shared.find(name);
    if (known != kernels().static_shared.end()) declare_kernel(kernel, known->second);
}
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*) { return cudaErrorNotSupported; }
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*) { return cudaErrorNotSupported; }
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t) { return cudaErrorNotSupported; }
}
