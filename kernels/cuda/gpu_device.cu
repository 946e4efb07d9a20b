#include "kernels/cuda/gpu_device.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>

#include "kernels/cuda/compiled_for.h"
#include "kernels/cuda/device_on.h"
#include "kernels/cuda/launch_attributes.h"

namespace verbatim::cuda {
namespace {

constexpr int kArchitectures[] = {__CUDA_ARCH_LIST__};  // 800, 900: architectures with code
constexpr int kMinComputeMajor = 8;                     // compute capability: cp.async, mma of bf16
constexpr bool kHasWarpgroups = has_warpgroup_code(VERBATIM_CUDA_ARCHITECTURES);  // CMake's list

template <typename Kernel>
__global__ void run(const Kernel kernel) {
    kernel();
}
// For a kernel that declares how many CTAs a Hopper SM is to hold: the compiler limits the registers per thread
// accordingly.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
template <typename Kernel>
constexpr int kResidentBlocks = 1;
#else
template <typename Kernel>
constexpr int kResidentBlocks = Kernel::kResidentBlocks;
#endif
template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, kResidentBlocks<Kernel>) run_resident(const Kernel kernel) {
    kernel();
}
template <typename Kernel>
constexpr auto entry_of() {
    if constexpr (requires { Kernel::kResidentBlocks; })
        return &run_resident<Kernel>;
    else
        return &run<Kernel>;
}

// The size of SIMT_LARGE_SHARED.
template <typename Kernel>
constexpr int shared_bytes() {
    if constexpr (requires { Kernel::kSharedBytes; }) return Kernel::kSharedBytes;
    return 0;
}

std::string text_of(simt::Dim3 size) {
    return std::to_string(size.x) + " x " + std::to_string(size.y) + " x " + std::to_string(size.z);
}

struct GpuGraph : DeviceGraph {
    ~GpuGraph() override {
        if (executable != nullptr) cudaGraphExecDestroy(executable);
    }
    cudaGraphExec_t executable = nullptr;  // null: instantiation failed
};

class GpuMachine : public Device {
public:
    GpuMachine(const cudaDeviceProp& properties, cudaStream_t stream, bool resets_after_errors)
        : properties_(properties), stream_(stream), resets_after_errors_(resets_after_errors) {
        ++num_machines_;
    }
    // After an error the process's CUDA context is unusable; if the program asked for it, a reset gives the next device
    // a fresh context. A reset also frees what other machines still have to release, so the last machine performs it.
    // An unreported kernel error still belongs to this device.
    ~GpuMachine() override {
        wait("the device's end");
        cudaStreamDestroy(stream_);
        one_has_failed_ = one_has_failed_ || (resets_after_errors_ && !first_error_.empty());
        if (--num_machines_ > 0 || !one_has_failed_) return;
        cudaDeviceReset();
        one_has_failed_ = false;
    }

    void* allocate(size_t bytes, size_t) override {
        void* memory = nullptr;
        ++counts_.allocations;
        keep(cudaMalloc(&memory, bytes == 0 ? 1 : bytes), "cudaMalloc of " + std::to_string(bytes) + " bytes");
        return memory;
    }
    void release(void* memory) override { keep(cudaFree(memory), "cudaFree"); }
    void upload(void* to, const void* from, size_t bytes) override {
        if (!first_error_.empty()) return;
        keep(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), "upload of " + std::to_string(bytes));
        wait("upload");  // the source is pageable and may be freed
    }
    void download(void* to, const void* from, size_t bytes) override {
        if (!first_error_.empty()) return;
        keep(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), "download of " + std::to_string(bytes));
        wait("download");
    }
    void copy(void* to, const void* from, size_t bytes) override {
        if (!first_error_.empty()) return;
        keep(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_), "copy of " + std::to_string(bytes));
    }
    void clear(void* memory, size_t bytes) override {
        if (!first_error_.empty()) return;
        keep(cudaMemsetAsync(memory, 0, bytes, stream_), "clearing " + std::to_string(bytes));
    }
    Status synchronize() override {
        wait("cudaStreamSynchronize");
        if (first_error_.empty()) return {};
        return tl::unexpected(Error{"GPU: " + first_error_, ErrorKind::kMachine});
    }
    [[nodiscard]] std::string description() const override {
        return std::string(properties_.name) + ", compute capability " + std::to_string(properties_.major) + "." +
               std::to_string(properties_.minor) + remark_;
    }
    [[nodiscard]] Status computes_in(reference::Profile profile) const override {
        if (profile == reference::Profile::kFast) return has_room_for_fast();
        return profile == reference::Profile::kTensorSm90 ? tensor_cores_ : Status{};
    }
    [[nodiscard]] int64_t resident_blocks() const override {
        return int64_t{properties_.multiProcessorCount} * (properties_.maxThreadsPerMultiProcessor / 256);
    }

    void* allocate_pinned(size_t bytes) override {
        void* memory = nullptr;
        keep(cudaMallocHost(&memory, bytes), "cudaMallocHost of " + std::to_string(bytes) + " bytes");
        return memory;
    }
    void release_pinned(void* memory) override {
        if (memory != nullptr) keep(cudaFreeHost(memory), "cudaFreeHost");
    }
    void upload_later(void* to, const void* pinned, size_t bytes) override {
        if (!first_error_.empty()) return;
        ++counts_.uploads;
        keep(cudaMemcpyAsync(to, pinned, bytes, cudaMemcpyHostToDevice, stream_), "upload of " + std::to_string(bytes));
    }
    void download_later(void* pinned, const void* from, size_t bytes) override {
        if (!first_error_.empty()) return;
        keep(cudaMemcpyAsync(pinned, from, bytes, cudaMemcpyDeviceToHost, stream_),
             "download of " + std::to_string(bytes));
    }

    void begin_graph() override {
        is_recording_ = true;
        keep(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    }
    std::unique_ptr<DeviceGraph> end_graph() override {
        auto made = std::make_unique<GpuGraph>();
        cudaGraph_t graph = nullptr;
        is_recording_ = false;
        keep(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture after " + last_launch());
        if (graph == nullptr) return made;
        keep(cudaGraphInstantiate(&made->executable, graph, 0), "cudaGraphInstantiate after " + last_launch());
        keep(cudaGraphDestroy(graph), "cudaGraphDestroy");
        return made;
    }
    void launch_graph(DeviceGraph& graph) override {
        if (!first_error_.empty()) return;
        ++counts_.graph_launches;
        keep(cudaGraphLaunch(dynamic_cast<GpuGraph&>(graph).executable, stream_), "cudaGraphLaunch");
    }

protected:
    [[nodiscard]] bool has_warpgroups() const { return kHasWarpgroups && uses_warpgroups_ && properties_.major == 9; }
    template <typename T>
    simt::Global<T> view(T* data, int64_t) {
        return {data};
    }
    template <typename Kernel>
    void launch(const char* kernel_name, simt::Dim3 grid, simt::Dim3 block, const Kernel& kernel) {
        if (!first_error_.empty() || grid.x == 0 || grid.y == 0 || grid.z == 0) return;
        const auto dim = [](simt::Dim3 size) {
            return dim3(static_cast<unsigned>(size.x), static_cast<unsigned>(size.y), static_cast<unsigned>(size.z));
        };
        constexpr int kSharedBytes = shared_bytes<Kernel>();
        static_assert(kSharedBytes <= 227 << 10, "a block of 9.0 has no more");
        if (kSharedBytes > 0 && kernels_with_shared_.insert(reinterpret_cast<const void*>(entry_of<Kernel>())).second) {
            keep(cudaFuncSetAttribute(entry_of<Kernel>(), cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
                 std::string(kernel_name) + " with " + std::to_string(kSharedBytes) + " bytes of shared memory");
        }
        cudaLaunchConfig_t config{};
        config.gridDim = dim(grid);
        config.blockDim = dim(block);
        config.dynamicSmemBytes = kSharedBytes;
        if constexpr (requires { kernel.shared_bytes(); }) {
            config.dynamicSmemBytes = static_cast<size_t>(kernel.shared_bytes());
        }
        config.stream = stream_;
        auto attributes = LaunchAttributes::of<Kernel>(kernels_wait());
        attributes.put_into(config);
        if (!is_recording_) ++counts_.launches;
        last_name_ = kernel_name;
        last_grid_ = grid;
        last_block_ = block;
        // The launch returns the error of this launch; cudaGetLastError would also return errors of an earlier device.
        if (const auto status = cudaLaunchKernelEx(&config, entry_of<Kernel>(), kernel); status != cudaSuccess) {
            keep(status, last_launch());
        }
    }

private:
    // Whether the code for this device contains wait_previous(): code for 8.0, which later devices run too, contains
    // none.
    [[nodiscard]] bool kernels_wait() const {
        const int own = 100 * properties_.major + 10 * properties_.minor;
        return own >= 900 && std::ranges::find(kArchitectures, own) != std::end(kArchitectures);
    }
    // Shared memory per CTA differs: 99 KiB on 8.6, 8.9 and 12.0, 163 on 8.0, 227 on 9.0.
    [[nodiscard]] Status has_room_for_fast() const {
        if (properties_.sharedMemPerBlockOptin >= size_t{TensorFastMatmul::kSharedBytes}) return {};
        return tl::unexpected(Error{"fast needs " + std::to_string(TensorFastMatmul::kSharedBytes) +
                                        " bytes of shared memory for a block: this is " + description() + ", with " +
                                        std::to_string(properties_.sharedMemPerBlockOptin) + "; exact runs everywhere",
                                    ErrorKind::kMachine});
    }
    [[nodiscard]] std::string last_launch() const {
        return std::string(last_name_) + " over " + text_of(last_grid_) + " blocks of " + text_of(last_block_);
    }
    // The error may come from any earlier kernel.
    void wait(const char* call) {
        ++counts_.waits;
        if (const auto status = cudaStreamSynchronize(stream_); status != cudaSuccess) {
            keep(status, std::string(call) + " after " + last_launch());
        }
    }
    void keep(cudaError_t status, const std::string& what) {
        if (status != cudaSuccess && first_error_.empty()) first_error_ = what + ": " + cudaGetErrorString(status);
    }

    cudaDeviceProp properties_;
    cudaStream_t stream_;
    bool resets_after_errors_;
    const char* last_name_ = "nothing";  // last launch
    simt::Dim3 last_grid_;
    simt::Dim3 last_block_;
    std::string first_error_;  // sticky (D3)
    bool is_recording_ = false;
    // Attribute already set; valid until a reset, which no machine outlives
    std::set<const void*> kernels_with_shared_;
    // Per process: all machines share CUDA's context.
    static inline int num_machines_ = 0;
    static inline bool one_has_failed_ = false;  // among machines that reset
};

// Other architectures have other arithmetics, whatever their sums: refused by name, without a test.
void grant_tensor_cores_of(Device& device, const cudaDeviceProp& properties, int64_t num_tiles) {
    if (properties.major == 9 && num_tiles > 0) return grant_tensor_cores(device, num_tiles);
    if (properties.major == 9) {
        return device.set_self_test_result(
            tl::unexpected(Error{"tensor.sm90 is refused: no self-test of the device was asked for"}));
    }
    device.set_self_test_result(
        tl::unexpected(Error{"tensor.sm90 is the arithmetic of compute capability 9.0: this is " +
                                 device.description() + "; exact runs everywhere",
                             ErrorKind::kMachine}));
}

}  // namespace

std::string_view compiled_architectures() { return VERBATIM_CUDA_ARCHITECTURES; }

Result<std::unique_ptr<Device>> make_gpu_device(const GpuDeviceConfig& config) {
    const auto failed = [](const char* call, cudaError_t status) {
        return tl::unexpected(
            Error{std::string("GPU: ") + call + ": " + cudaGetErrorString(status), ErrorKind::kMachine});
    };
    cudaDeviceProp properties{};
    if (const auto status = cudaSetDevice(config.ordinal); status != cudaSuccess)
        return failed("cudaSetDevice", status);
    if (const auto status = cudaGetDeviceProperties(&properties, config.ordinal); status != cudaSuccess) {
        return failed("cudaGetDeviceProperties", status);
    }
    if (properties.major < kMinComputeMajor) {
        return tl::unexpected(Error{std::string("GPU: ") + properties.name + " has compute capability " +
                                        std::to_string(properties.major) + "." + std::to_string(properties.minor) +
                                        ": the kernels need 8.0 or later; cuda-emulated runs everywhere",
                                    ErrorKind::kMachine});
    }
    cudaStream_t stream = nullptr;
    if (const auto status = cudaStreamCreate(&stream); status != cudaSuccess) return failed("cudaStreamCreate", status);
    std::unique_ptr<Device> device =
        std::make_unique<DeviceOn<GpuMachine>>(properties, stream, config.resets_after_errors);
    grant_tensor_cores_of(*device, properties, config.num_self_test_tiles);
    return device;
}

}  // namespace verbatim::cuda
