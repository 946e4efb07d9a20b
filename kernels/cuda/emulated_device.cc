#include "kernels/cuda/emulated_device.h"

#include <cstring>

#include "engine/base/result.h"
#include "kernels/cuda/device_on.h"

namespace verbatim::cuda {
namespace {

class EmulatedMachine : public Device {
public:
    explicit EmulatedMachine(simt::Emulator& emulator) : emulator_(emulator) {}

    void* allocate(size_t bytes, size_t cell_bytes) override { return emulator_.allocate(bytes, cell_bytes); }
    void release(void* memory) override { emulator_.release(memory); }
    void upload(void* to, const void* from, size_t bytes) override {
        if (bytes == 0) return;
        simt::Memory& memory = emulator_.memory_of(to);
        memory.fill(static_cast<size_t>(static_cast<std::byte*>(to) - memory.bytes()), bytes);
        std::memcpy(to, from, bytes);
    }
    void download(void* to, const void* from, size_t bytes) override {
        if (bytes > 0) std::memcpy(to, from, bytes);
    }
    Status synchronize() override {
        if (emulator_.findings().empty()) return {};
        return error("emulated GPU: {}", emulator_.findings().front().text);
    }
    [[nodiscard]] std::string description() const override { return "emulated: one fiber per thread"; }
    [[nodiscard]] Status computes_in(reference::Profile) const override { return {}; }

protected:
    [[nodiscard]] static int64_t num_processors() { return 1; }
    template <typename T>
    simt::Global<T> view(T* data, int64_t count) {
        return data == nullptr || count == 0 ? simt::Global<T>() : simt::Global<T>(emulator_, data, count);
    }
    template <typename Kernel>
    void launch(const char* kernel_name, simt::Dim3 grid, simt::Dim3 block, const Kernel& kernel) {
        if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
        emulator_.launch(kernel_name, grid, block, [&kernel] { kernel(); });
    }

private:
    simt::Emulator& emulator_;
};

}  // namespace

std::unique_ptr<Device> make_emulated_device(simt::Emulator& emulator) {
    return std::make_unique<DeviceOn<EmulatedMachine>>(emulator);
}

}  // namespace verbatim::cuda
