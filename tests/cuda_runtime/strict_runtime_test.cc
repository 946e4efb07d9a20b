// That the stand-in sees what it is there to see: every rule broken once.
#include "tests/cuda_runtime/strict_runtime.h"

#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "kernels/cuda/launch_attributes.h"

namespace verbatim::cuda::strict_runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A stream, and 64 bytes of each kind of memory.
struct Scene {
    Scene() {
        begin_process();
        EXPECT_EQ(cudaStreamCreate(&stream), cudaSuccess);
        EXPECT_EQ(cudaMalloc(&device, 64), cudaSuccess);
        EXPECT_EQ(cudaMallocHost(reinterpret_cast<void**>(&pinned), 64), cudaSuccess);
    }
    cudaError_t up(const void* from, size_t bytes) {
        return cudaMemcpyAsync(device, from, bytes, cudaMemcpyHostToDevice, stream);
    }
    cudaError_t down(void* to, size_t bytes) {
        return cudaMemcpyAsync(to, device, bytes, cudaMemcpyDeviceToHost, stream);
    }
    cudaError_t launch(dim3 grid, dim3 block, size_t shared_bytes = 0, const void* kernel = "a kernel") {
        cudaLaunchConfig_t config{};
        config.gridDim = grid;
        config.blockDim = block;
        config.dynamicSmemBytes = shared_bytes;
        config.stream = stream;
        return cudaLaunchKernelExC(&config, kernel, nullptr);
    }
    // A kernel that says this of itself, in blocks of 1024 threads.
    template <typename Kernel>
    cudaError_t launch_as(unsigned num_blocks, bool kernels_wait = true) {
        cudaLaunchConfig_t config{};
        config.gridDim = num_blocks;
        config.blockDim = 1024;
        config.stream = stream;
        auto attributes = LaunchAttributes::of<Kernel>(kernels_wait);
        attributes.put_into(config);
        return cudaLaunchKernelExC(&config, "a kernel", nullptr);
    }
    void capture() { cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal); }
    // Of one launch.
    cudaGraphExec_t record() {
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t executable = nullptr;
        capture();
        launch(1, 1);
        cudaStreamEndCapture(stream, &graph);
        cudaGraphInstantiate(&executable, graph, 0);
        cudaGraphDestroy(graph);
        return executable;
    }

    cudaStream_t stream = nullptr;
    void* device = nullptr;
    char* pinned = nullptr;
};

struct Plain {};
struct Meets {
    static constexpr bool kCooperative = true;
};
struct Depends {
    static constexpr bool kDependent = true;
};

struct Misuse {
    const char* found;
    void (*commit)(Scene&);
};
std::array<char, 64> pageable;
constexpr const char* kWithArrays = "a kernel with arrays";

const Misuse kBreaches[] = {
    {"cudaFree: what is not allocated", [](Scene& s) { cudaFree(s.device), cudaFree(s.device); }},
    {"cudaFreeHost: what is not allocated", [](Scene& s) { cudaFreeHost(s.device); }},
    {"cudaMemcpyAsync: beyond what is allocated on the device", [](Scene& s) { s.up(s.pinned, 65); }},
    {"cudaMemcpyAsync: beyond pinned memory", [](Scene& s) { s.down(s.pinned + 1, 64); }},
    {"cudaMemcpyAsync: what is not there",
     [](Scene& s) { cudaMemcpyAsync(s.device, s.pinned, 1, cudaMemcpyHostToDevice, nullptr); }},
    {"cudaGraphExecDestroy: what is not there",
     [](Scene& s) {
         const auto executable = s.record();
         cudaGraphExecDestroy(executable), cudaGraphExecDestroy(executable);
     }},
    {"cudaStreamDestroy: what is not there",
     [](Scene& s) { cudaStreamDestroy(s.stream), cudaStreamDestroy(s.stream); }},
    {"cudaMalloc: a copy of memory that is not pinned is under way",
     [](Scene& s) { s.down(pageable.data(), 64), cudaMalloc(&s.device, 1); }},
    {"cudaStreamSynchronize: pinned memory was written while a copy of it was under way",
     [](Scene& s) { s.up(s.pinned, 64), s.pinned[3] = 1, cudaStreamSynchronize(s.stream); }},
    {"cudaFreeHost: memory that a copy under way needs",
     [](Scene& s) { s.down(s.pinned, 64), cudaFreeHost(s.pinned); }},
    {"cudaMalloc: while a stream is captured", [](Scene& s) { s.capture(), cudaMalloc(&s.device, 1); }},
    {"cudaFree: while a stream is captured", [](Scene& s) { s.capture(), cudaFree(s.device); }},
    {"cudaMemcpyAsync: while a stream is captured", [](Scene& s) { s.capture(), s.up(s.pinned, 1); }},
    {"cudaStreamSynchronize: while a stream is captured",
     [](Scene& s) { s.capture(), cudaStreamSynchronize(s.stream); }},
    {"cudaStreamDestroy: its capture is not ended", [](Scene& s) { s.capture(), cudaStreamDestroy(s.stream); }},
    {"cudaLaunchKernelExC: a grid of 1 x 65536 x 1 blocks",
     [](Scene& s) {
         s.launch({1, 65536}, 1);
     }},
    {"cudaLaunchKernelExC: a block of 33 x 32 x 1 threads",
     [](Scene& s) {
         s.launch(1, {33, 32});
     }},
    {"cudaLaunchKernelExC: 50000 bytes of shared memory beside 0 that the compiler knows of, 0 were asked for",
     [](Scene& s) {
         cudaFuncSetAttribute("another kernel", cudaFuncAttributeMaxDynamicSharedMemorySize, 50000);
         s.launch(1, 1, 50000);
     }},
    {"cudaLaunchKernelExC: 9152 bytes of shared memory beside 40001 that the compiler knows of, 0 were asked for",
     [](Scene& s) {
         s.launch(1, 1, 9151, kWithArrays);
         s.launch(1, 1, 9152, kWithArrays);
     }},
    {"cudaLaunchKernelExC: 60001 bytes of shared memory beside 40001 that the compiler knows of, 60000 were asked for",
     [](Scene& s) {
         cudaFuncSetAttribute(kWithArrays, cudaFuncAttributeMaxDynamicSharedMemorySize, 60000);
         s.launch(1, 1, 60000, kWithArrays);
         s.launch(1, 1, 60001, kWithArrays);
     }},
    {"cudaLaunchKernelExC: 265 blocks are to be there at once, the device holds 264",
     [](Scene& s) { s.launch_as<Meets>(265); }},
    {"cudaFuncSetAttribute: more than a block has",
     [](Scene&) { cudaFuncSetAttribute("a kernel", cudaFuncAttributeMaxDynamicSharedMemorySize, (227 << 10) + 1); }},
    {"cudaFuncSetAttribute: more than a block has",
     [](Scene&) {
         constexpr int kLeft = (227 << 10) - 40001;
         cudaFuncSetAttribute(kWithArrays, cudaFuncAttributeMaxDynamicSharedMemorySize, kLeft);
         cudaFuncSetAttribute(kWithArrays, cudaFuncAttributeMaxDynamicSharedMemorySize, kLeft + 1);
     }},
};

TEST(StrictRuntime, AViolationNamesItsCall) {
    declare_kernel(kWithArrays, 40001);
    for (const Misuse& breach : kBreaches) {
        Scene scene;
        breach.commit(scene);
        EXPECT_THAT(violations(), ElementsAre(breach.found));
    }
}

TEST(StrictRuntime, ALaunchHasItsKernelsAttributes) {
    Scene scene;
    EXPECT_EQ(scene.launch_as<Plain>(100'000), cudaSuccess);
    EXPECT_EQ(scene.launch_as<Depends>(100'000, false), cudaSuccess);
    EXPECT_EQ(counts().dependents + counts().cooperative, 0);
    EXPECT_EQ(scene.launch_as<Depends>(100'000), cudaSuccess);
    EXPECT_EQ(counts().dependents, 1);
    EXPECT_EQ(scene.launch_as<Meets>(264), cudaSuccess);
    EXPECT_EQ(counts().cooperative, 1);
    EXPECT_THAT(violations(), IsEmpty());
    EXPECT_EQ(scene.launch_as<Meets>(265), cudaErrorCooperativeLaunchTooLarge);
}

TEST(StrictRuntime, ACopyCompletesAtItsStreamsWait) {
    Scene scene;
    char back[64] = {};
    scene.pinned[5] = 7;
    scene.up(scene.pinned, 64);
    cudaStreamSynchronize(scene.stream);
    scene.down(back, 64);
    EXPECT_EQ(back[5], 0);
    cudaStreamSynchronize(scene.stream);
    EXPECT_EQ(back[5], 7);
    EXPECT_THAT(violations(), IsEmpty());
}

TEST(StrictRuntime, CopiesOnTheDeviceAndClearsKeepTheStreamsOrderAndTheBounds) {
    Scene scene;
    void* other = nullptr;
    EXPECT_EQ(cudaMalloc(&other, 64), cudaSuccess);
    std::array<std::byte, 8> sent{};
    sent.fill(std::byte{7});
    std::memcpy(scene.pinned, sent.data(), sent.size());
    scene.up(scene.pinned, 8);
    EXPECT_EQ(cudaMemcpyAsync(other, scene.device, 8, cudaMemcpyDeviceToDevice, scene.stream), cudaSuccess);
    EXPECT_EQ(cudaMemsetAsync(scene.device, 0, 8, scene.stream), cudaSuccess);
    cudaStreamSynchronize(scene.stream);
    EXPECT_EQ(std::memcmp(other, sent.data(), 8), 0) << "the copy follows the upload and precedes the clear";
    EXPECT_EQ(*static_cast<std::byte*>(scene.device), std::byte{0});
    EXPECT_EQ(cudaMemcpyAsync(other, scene.device, 65, cudaMemcpyDeviceToDevice, scene.stream), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemsetAsync(scene.device, 0, 65, scene.stream), cudaErrorInvalidValue);
    EXPECT_EQ(violations().size(), 2u);
    cudaFree(other);
}

TEST(StrictRuntime, AKernelsErrorIsReportedFromTheNextWaitUntilAReset) {
    Scene scene;
    begin_process({.fail_at_kernel = 2});
    cudaStreamCreate(&scene.stream);
    const auto executable = scene.record();
    EXPECT_EQ(scene.launch(1, 1), cudaSuccess);
    EXPECT_EQ(cudaGraphLaunch(executable, scene.stream), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(scene.stream), cudaErrorIllegalAddress);
    EXPECT_EQ(scene.launch(1, 1), cudaErrorIllegalAddress);
    EXPECT_THAT(violations(), IsEmpty());
    cudaDeviceReset();
    EXPECT_THAT(violations(),
                ElementsAre("cudaDeviceReset: takes away streams, 1 of them; executable graphs, 1 of them"));
    EXPECT_EQ(cudaStreamCreate(&scene.stream), cudaSuccess);
}

}  // namespace
}  // namespace verbatim::cuda::strict_runtime
