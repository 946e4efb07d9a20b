// kernels/sandbox/emulated_parts.h: owns the common part of the files of emulated kernels: a call's device, its
// arguments in the device's types, and sequences with a state.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device_array.h"
#include "kernels/cuda/emulated_device.h"
#include "kernels/sandbox/builtin_parts.h"
#include "kernels/simt/emulator.h"

namespace verbatim::sandbox {

inline cuda::Floats floats_of(const verbatim_floats& rows) {
    return {rows.data, rows.num_rows, rows.width, rows.stride};
}
// The device has one type for inputs and outputs.
inline cuda::Floats floats_of(const verbatim_const_floats& rows) {
    return {const_cast<float*>(rows.data), rows.num_rows, rows.width, rows.stride};
}
inline cuda::Floats floats_of(const cuda::DeviceArray<float>& rows, int64_t width) {
    return {rows.data(), rows.count() / width, width, width};
}
template <typename T>
cuda::DeviceArray<T> on_device(cuda::Device& device, const std::vector<T>& values) {
    return cuda::DeviceArray<T>(device, std::span<const T>(values));
}

// Runs body(device) -> void; 0 if the device reports no error. A device with several multiprocessors has as many
// resident blocks; with one, the emulator's default, which is small.
template <typename Body>
int32_t on_emulator(const verbatim_run* run, const Body& body) {
    cuda::EmulatedDeviceConfig config;
    if (run->num_threads > 1) config.resident_blocks = run->num_threads;
    const auto device = cuda::make_emulated_device(*static_cast<simt::Emulator*>(run->device), config);
    body(*device);
    return device->synchronize() ? 0 : 1;
}

// Room for the pairs that operations write for a following matmul, unused here.
inline cuda::DeviceArray<uint32_t> room_for_pairs(cuda::Device& device, int64_t num_rows, int64_t width) {
    return {device, num_rows * cuda::row_pairs_of(width)};
}

// Sequences with a state: rows 0 ... num_sequences - 1 of a pool are the initial states, the remaining rows the
// results.
class StatefulStep {
public:
    StatefulStep(cuda::Device& device, const verbatim_sequences& sequences, const float* states_in, int64_t size)
        : device_(device), num_(sequences.num_sequences), size_(size), pool_(device, 2 * num_ * size) {
        std::vector<int32_t> row_sequences;
        for (int64_t s = 0; s < num_; ++s) {
            const Span rows = rows_of_sequence(sequences, s);
            list_.push_back({.first_row = static_cast<int32_t>(rows.first),
                             .num_rows = static_cast<int32_t>(rows.count),
                             .first_position = states_in != nullptr ? 1 : 0,
                             .state_src = states_in != nullptr ? static_cast<int32_t>(s) : -1,
                             .state_dst = static_cast<int32_t>(num_ + s)});
            row_sequences.insert(row_sequences.end(), static_cast<size_t>(rows.count), static_cast<int32_t>(s));
        }
        std::vector<float> before(static_cast<size_t>(2 * num_ * size));
        if (states_in != nullptr) std::copy_n(states_in, num_ * size, before.data());
        pool_.upload(before);
        sequences_ = on_device(device, list_);
        row_sequences_ = on_device(device, row_sequences);
        writes_ = cuda::DeviceArray<cuda::DeviceStateWrite>(device, 1);
        faults_ = on_device(device, std::vector<int32_t>(static_cast<size_t>(num_), INT32_MAX));
    }
    [[nodiscard]] cuda::DeviceBatch batch() const {
        return {.row_sequences = row_sequences_.data(),
                .sequences = sequences_.data(),
                .writes = writes_.data(),
                .faults = faults_.data(),
                .num_rows = row_sequences_.count(),
                .num_sequences = num_,
                .max_writes = 1};
    }
    [[nodiscard]] cuda::DeviceStates states() const { return {pool_.data(), 2 * num_, size_, size_, 0}; }
    void leave(float* states_out) const {
        std::vector<float> after(static_cast<size_t>(num_ * size_));
        pool_.download(num_ * size_, after);
        device_.upload(states_out, after.data(), after.size() * sizeof(float));
    }

private:
    cuda::Device& device_;
    int64_t num_, size_;
    cuda::DeviceArray<float> pool_;
    std::vector<cuda::DeviceSequence> list_;
    cuda::DeviceArray<cuda::DeviceSequence> sequences_;
    cuda::DeviceArray<int32_t> row_sequences_, faults_;
    cuda::DeviceArray<cuda::DeviceStateWrite> writes_;
};

constexpr verbatim_kernel emulated_of(const char* operation,
                                      int32_t (*run)(const verbatim_kernel*, const verbatim_run*),
                                      int32_t (*supports)(const verbatim_kernel*, verbatim_args) = nullptr,
                                      const char* profile = "exact", const char* name = "cuda-emulated") {
    return {.abi = VERBATIM_KERNEL_ABI,
            .name = name,
            .operation = operation,
            .profile = profile,
            .machine = "cuda",
            .supports = supports,
            .run = run};
}

// Each file's kernels.
std::span<const verbatim_kernel> emulated_delta_kernels();
std::span<const verbatim_kernel> emulated_expert_kernels();

}  // namespace verbatim::sandbox
