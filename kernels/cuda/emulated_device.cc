#include "kernels/cuda/emulated_device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/result.h"
#include "kernels/cuda/device_on.h"
#include "kernels/cuda/tensor_self_test.h"

namespace verbatim::cuda {
namespace {

constexpr int32_t kMaxGridYZ = 65535;  // of a grid in y and z: CUDA's limit

struct RecordedLaunch {
    const char* kernel_name;
    simt::Dim3 grid;
    simt::Dim3 block;
    std::function<void()> kernel;  // with its recorded parameters
    simt::LaunchLimits limits;
};
struct EmulatedGraph : DeviceGraph {
    std::vector<RecordedLaunch> launches;
};

class EmulatedMachine : public Device {
public:
    EmulatedMachine(simt::Emulator& emulator, const EmulatedDeviceConfig& config)
        : emulator_(emulator), config_(config) {}

    void* allocate(size_t bytes, size_t cell_bytes) override {
        check_not_recording("memory");
        if (config_.fail_at_allocation == ++counts_.allocations) {
            fail({fmt::format("allocation {}, of {} bytes: told to find no memory", counts_.allocations, bytes),
                  ErrorKind::kMachine});
            return nullptr;
        }
        return emulator_.allocate(bytes, cell_bytes);
    }
    void release(void* memory) override { emulator_.release(memory); }
    void upload(void* to, const void* from, size_t bytes) override {
        if (error_) return;
        wait();
        write(to, from, bytes);
    }
    void download(void* to, const void* from, size_t bytes) override {
        if (error_) return;
        wait();
        if (bytes > 0) std::memcpy(to, from, bytes);
    }
    void copy(void* to, const void* from, size_t bytes) override {
        check_not_recording("a copy");
        if (!error_) write(to, from, bytes);
    }
    void clear(void* memory, size_t bytes) override {
        check_not_recording("a copy");
        if (error_ || bytes == 0) return;
        simt::Memory& cells = emulator_.memory_of(memory);
        cells.fill(static_cast<size_t>(static_cast<std::byte*>(memory) - cells.bytes()), bytes);
        std::memset(memory, 0, bytes);
    }
    Status synchronize() override {
        wait();
        if (error_) return tl::unexpected(*error_);
        if (emulator_.findings().empty()) return {};
        return tl::unexpected(Error{"emulated GPU: " + emulator_.findings().front().text, ErrorKind::kCheck});
    }
    [[nodiscard]] std::string description() const override { return "emulated: one fiber per thread" + remark_; }
    [[nodiscard]] Status computes_in(reference::Profile profile) const override {
        return profile == reference::Profile::kTensorSm90 ? tensor_cores_ : Status{};
    }
    [[nodiscard]] int64_t resident_blocks() const override { return config_.resident_blocks; }

    void* allocate_pinned(size_t bytes) override { return std::malloc(bytes); }
    void release_pinned(void* memory) override { std::free(memory); }
    // Copies at once, since all earlier calls have run; synchronize() checks that the source did not change meanwhile.
    void upload_later(void* to, const void* pinned, size_t bytes) override {
        check_not_recording("a transfer");
        if (error_) return;
        ++counts_.uploads;
        write(to, pinned, bytes);
        const auto* source = static_cast<const std::byte*>(pinned);
        under_way_.push_back({source, {source, source + bytes}});
    }
    // Takes the values of now and delivers them when the host waits, not before.
    void download_later(void* pinned, const void* from, size_t bytes) override {
        check_not_recording("a transfer");
        if (error_) return;
        const auto* source = static_cast<const std::byte*>(from);
        coming_.push_back({static_cast<std::byte*>(pinned), {source, source + bytes}});
    }

    void begin_graph() override {
        check_not_recording("another graph");
        recorded_ = std::make_unique<EmulatedGraph>();
    }
    std::unique_ptr<DeviceGraph> end_graph() override { return std::move(recorded_); }
    void launch_graph(DeviceGraph& graph) override {
        ++counts_.graph_launches;
        for (const RecordedLaunch& launch : dynamic_cast<EmulatedGraph&>(graph).launches) run(launch);
    }

protected:
    [[nodiscard]] bool has_warpgroups() const { return uses_warpgroups_; }
    template <typename T>
    simt::Global<T> view(T* data, int64_t count) {
        const bool nothing = data == nullptr || count == 0 || error_;
        return nothing ? simt::Global<T>() : simt::Global<T>(emulator_, data, count);
    }
    template <typename Kernel>
    void launch(const char* kernel_name, simt::Dim3 grid, simt::Dim3 block, const Kernel& kernel) {
        if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
        if (grid.x < 0 || grid.y < 0 || grid.y > kMaxGridYZ || grid.z < 0 || grid.z > kMaxGridYZ) {
            return fail({fmt::format("{} over {} x {} x {} blocks: a grid has up to 2147483647 x {} x {}", kernel_name,
                                     grid.x, grid.y, grid.z, kMaxGridYZ, kMaxGridYZ),
                         ErrorKind::kMachine});
        }
        const RecordedLaunch launch{kernel_name, grid, block, [kernel] { kernel(); }, limits_of<Kernel>(block)};
        if (recorded_) return recorded_->launches.push_back(launch);
        ++counts_.launches;
        run(launch);
    }

private:
    // Launches with the number of resident CTAs for this block size.
    template <typename Kernel>
    [[nodiscard]] simt::LaunchLimits limits_of(simt::Dim3 block) const {
        simt::LaunchLimits limits = simt::limits_of<Kernel>();
        limits.most_blocks = std::max<int64_t>(resident_blocks() * 256 / (block.x * block.y * block.z), 1);
        return limits;
    }
    struct Transfer {
        const std::byte* from;
        std::vector<std::byte> bytes;
    };
    struct Arrival {
        std::byte* to;
        std::vector<std::byte> bytes;
    };

    void fail(Error error) {
        if (error_) return;
        error.message = "emulated GPU: " + error.message;
        error_ = std::move(error);
    }
    void check_not_recording(const char* what) const {
        CHECK(!recorded_, "{} is asked for while a graph is recorded", what);
    }
    void write(void* to, const void* from, size_t bytes) {
        if (bytes == 0) return;
        simt::Memory& memory = emulator_.memory_of(to);
        memory.fill(static_cast<size_t>(static_cast<std::byte*>(to) - memory.bytes()), bytes);
        std::memcpy(to, from, bytes);
    }
    void run(const RecordedLaunch& launch) {
        if (error_) return;
        if (config_.fail_at_launch == ++num_run_) {
            return fail({fmt::format("{} over {} x {} x {} blocks: told to fail at launch {}", launch.kernel_name,
                                     launch.grid.x, launch.grid.y, launch.grid.z, num_run_),
                         ErrorKind::kMachine});
        }
        emulator_.launch(launch.kernel_name, launch.grid, launch.block, launch.kernel, launch.limits);
    }
    void wait() {
        check_not_recording("waiting");
        ++counts_.waits;
        for (const Transfer& transfer : std::exchange(under_way_, {})) {
            CHECK(std::memcmp(transfer.from, transfer.bytes.data(), transfer.bytes.size()) == 0,
                  "pinned memory was written while it was on its way to the device");
        }
        for (const Arrival& arrival : std::exchange(coming_, {})) {
            std::memcpy(arrival.to, arrival.bytes.data(), arrival.bytes.size());
        }
    }

    simt::Emulator& emulator_;
    EmulatedDeviceConfig config_;
    std::unique_ptr<EmulatedGraph> recorded_;  // while a graph is recorded
    std::vector<Transfer> under_way_;
    std::vector<Arrival> coming_;
    int64_t num_run_ = 0;
    std::optional<Error> error_;  // sticky (D3)
};

}  // namespace

std::unique_ptr<Device> make_emulated_device(simt::Emulator& emulator, const EmulatedDeviceConfig& config) {
    std::unique_ptr<Device> device = std::make_unique<DeviceOn<EmulatedMachine>>(emulator, config);
    if (config.num_self_test_tiles > 0) {
        grant_tensor_cores(*device, config.num_self_test_tiles);
    }
    return device;
}

}  // namespace verbatim::cuda
