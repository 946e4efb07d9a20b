// The CUDA engine's speed on a GPU, against its memory's bandwidth: single operations, and decode steps of a whole
// model.
//   gpu_benchmark              operations: a table; exit code 4 without a device
//   gpu_benchmark --decode     decode steps of granite-4.0-h-micro with random weights, in exact and tensor.sm90
//   gpu_benchmark --describe   the device
//   gpu_benchmark --emulated   all of it on tiny shapes in the emulator: shows that it runs; the times are meaningless
#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <string_view>
#include <thread>

#include "engine/base/result.h"
#include "kernels/cuda/emulated_device.h"
#include "kernels/cuda/gpu_device.h"
#include "reference/loader/model_choice.h"
#include "tests/benchmarks/device_copy.h"
#include "tests/benchmarks/gpu_decode.h"
#include "tests/benchmarks/gpu_operations.h"

namespace verbatim::cuda {
namespace {

using reference::Profile;

constexpr int kExitBadUsage = 2;
constexpr int kExitNoDevice = 4;
constexpr size_t kCopyBytes = size_t{1} << 30;

Result<double> copy_bytes_per_s() {
    CopySeconds seconds;
    const std::string failure = time_device_copy(kCopyBytes, seconds);
    if (!failure.empty()) return error("copy: {}", failure);
    const auto rate = [](double of) { return 2.0 * static_cast<double>(kCopyBytes) / of; };
    fmt::print("the device's own copy {:>10.1f} us {:>8.0f} GB/s\n", seconds.own * 1e6, rate(seconds.own) * 1e-9);
    fmt::print("copy kernel {:>10.1f} us {:>8.0f} GB/s, {:.3f} of the device's own\n", seconds.kernel * 1e6,
               rate(seconds.kernel) * 1e-9, seconds.own / seconds.kernel);
    return rate(seconds.own);
}

// The speed of a library without a promise of bits, next to the tensor matmuls.
void library_gemms() {
    for (const GemmShape& shape :
         {GemmShape{8192, 8192, 8192}, GemmShape{4096, 4096, 4096}, GemmShape{1, 8192, 4096}}) {
        double seconds = 0;
        const std::string failure = time_library_gemm(shape, seconds);
        if (!failure.empty()) return fmt::print("library matmul: {}\n", failure);
        const double flops = 2.0 * shape.rows * shape.outputs * shape.k;
        fmt::print("library matmul {:>5} x {:>5} x {:>5} {:>10.1f} us {:>8.1f} TFLOP/s\n", shape.rows, shape.outputs,
                   shape.k, seconds * 1e6, flops / seconds * 1e-12);
    }
}

uint64_t fresh_seed() {
    std::random_device chance;
    return uint64_t{chance()} << 32 | chance();
}

Status decode(Device& device, const std::string& model_name, const DecodeConfig& config) {
    const auto num_threads = static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency()));
    ASSIGN_OR_RETURN(const reference::Model model,
                     reference::choose_model(model_name, 1, {.num_threads = num_threads}));
    for (const Profile profile : {Profile::kExact, Profile::kTensorSm90}) {
        if (!device.computes_in(profile)) continue;
        RETURN_IF_ERROR(measure_decode(device, model, model_name, profile, config));
        std::fflush(stdout);
    }
    return {};
}

Status run(std::string_view what) {
    if (what == "--emulated") {
        simt::Emulator emulator;
        const auto device = make_emulated_device(emulator);
        RETURN_IF_ERROR(measure_operations(*device, {.tiny = true}));
        return decode(
            *device, "tiny-granite",
            {.shapes = {{.batch = 1, .context = 5}, {.batch = 3, .context = 23}}, .num_steps = 2, .prefill_rows = 16});
    }
    ASSIGN_OR_RETURN(const auto device, make_gpu_device());
    fmt::print("{}\n", device->description());
    if (what == "--describe") return {};
    const uint64_t seed = fresh_seed();
    fmt::print("inputs of seed {}\n", seed);
    ASSIGN_OR_RETURN(const double copy, copy_bytes_per_s());
    if (what == "--decode") return decode(*device, "granite-4.0-h-micro", {.copy_bytes_per_s = copy, .seed = seed});
    library_gemms();
    return measure_operations(*device, {.copy_bytes_per_s = copy, .seed = seed});
}

}  // namespace
}  // namespace verbatim::cuda

int main(int argc, char** argv) {
    const std::string_view what = argc > 1 ? argv[1] : "";
    if (argc > 2 || (what != "" && what != "--decode" && what != "--describe" && what != "--emulated")) {
        fmt::print(stderr, "gpu_benchmark: there are --decode, --describe and --emulated\n");
        return verbatim::cuda::kExitBadUsage;
    }
    std::setvbuf(stdout, nullptr, _IOLBF, 0);  // what was measured stays when a later part hangs
    const verbatim::Status status = verbatim::cuda::run(what);
    if (status) return 0;
    fmt::print(stderr, "gpu_benchmark: {}\n", status.error().message);
    return verbatim::cuda::kExitNoDevice;
}
