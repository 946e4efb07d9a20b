// The matmuls of every profile on a GPU: time, arithmetic and memory traffic per call, for many rows and for few.
//   gpu_benchmark        a table; exit code 4 without a device
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "engine/base/result.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cuda/device_array.h"
#include "kernels/cuda/fragments.h"
#include "kernels/cuda/gpu_device.h"
#include "reference/numerics/bf16.h"

namespace verbatim::cuda {
namespace {

using reference::Profile;

constexpr int kExitNoDevice = 4;
constexpr int kCalls = 20;  // that are timed together

struct Shape {
    int64_t num_rows, num_outputs, num_k;
};
constexpr Shape kShapes[] = {{8192, 8192, 8192}, {4096, 4096, 4096}, {2048, 8192, 2048},
                             {512, 4096, 2048},  {64, 8192, 4096},   {32, 8192, 4096},
                             {8, 8192, 4096},    {1, 8192, 4096},    {1, 50176, 2048}};

// Values of one size each, so that no product is special: what they are does not matter to the time.
std::vector<uint16_t> weights_of(const Shape& shape) {
    std::vector<uint16_t> weights(static_cast<size_t>(shape.num_outputs * shape.num_k));
    uint32_t state = 1;
    for (uint16_t& weight : weights) {
        state = state * 1664525U + 1013904223U;
        weight = static_cast<uint16_t>((state >> 16 & 0x80FFU) | 0x3E00U);
    }
    return weights;
}

std::vector<uint32_t> packed(Profile profile, const reference::MatrixView& weight) {
    if (profile != Profile::kExact) return pack_fragments(weight);
    std::vector<uint32_t> pairs(static_cast<size_t>(cpu::PackedMatrix::num_pairs_of(weight.rows, weight.cols)));
    const cpu::PackedMatrix matrix(weight.rows, weight.cols, pairs.data());
    for (int64_t i = 0; i < matrix.num_panels(); ++i) {
        cpu::pack_panel(weight, i, pairs.data() + i * matrix.panel_pairs());
    }
    return pairs;
}

// Seconds of a call, the best of a few rounds.
template <typename Call>
Result<double> seconds_of(Device& device, const Call& call) {
    call();
    RETURN_IF_ERROR(device.synchronize());
    double best = 1e9;
    for (int round = 0; round < 5; ++round) {
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < kCalls; ++i) call();
        RETURN_IF_ERROR(device.synchronize());
        const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
        best = std::min(best, time.count() / kCalls);
    }
    return best;
}

Status measure(Device& device, Profile profile, const Shape& shape, const std::vector<uint16_t>& weights) {
    const reference::MatrixView view{weights.data(), shape.num_outputs, shape.num_k};
    const std::vector<uint32_t> words = packed(profile, view);
    const DeviceArray<uint32_t> device_words(device, std::span<const uint32_t>(words));
    const DeviceArray<float> out(device, shape.num_rows * shape.num_outputs);
    const std::vector<uint32_t> inputs(static_cast<size_t>(shape.num_rows * shape.num_k / 2), 0x3F803F80U);
    const DeviceArray<uint32_t> pairs(device, std::span<const uint32_t>(inputs));
    const DeviceMatrix matrix{device_words.data(), nullptr, shape.num_outputs, shape.num_k};
    const Floats to{out.data(), shape.num_rows, shape.num_outputs, shape.num_outputs};
    ASSIGN_OR_RETURN(const double seconds, seconds_of(device, [&] {
                         profile == Profile::kExact ? device.matmul(pairs.data(), matrix, to)
                                                    : device.tensor_matmul(profile, pairs.data(), matrix, to);
                     }));
    const double flops = 2.0 * static_cast<double>(shape.num_rows * shape.num_outputs * shape.num_k);
    fmt::print("{:<12} {:>5} x {:>5} x {:>5} {:>10.1f} us {:>8.1f} TFLOP/s {:>8.0f} GB/s of weights\n",
               reference::name(profile), shape.num_rows, shape.num_outputs, shape.num_k, seconds * 1e6,
               flops / seconds * 1e-12, static_cast<double>(words.size() * 4) / seconds * 1e-9);
    return {};
}

Status run() {
    ASSIGN_OR_RETURN(const auto device, make_gpu_device());
    fmt::print("{}\n", device->description());
    for (const Shape& shape : kShapes) {
        const std::vector<uint16_t> weights = weights_of(shape);
        for (const Profile profile : {Profile::kExact, Profile::kTensorSm90, Profile::kFast}) {
            if (device->computes_in(profile)) RETURN_IF_ERROR(measure(*device, profile, shape, weights));
        }
    }
    return {};
}

}  // namespace
}  // namespace verbatim::cuda

int main() {
    const verbatim::Status status = verbatim::cuda::run();
    if (status) return 0;
    fmt::print(stderr, "gpu_benchmark: {}\n", status.error().message);
    return verbatim::cuda::kExitNoDevice;
}
