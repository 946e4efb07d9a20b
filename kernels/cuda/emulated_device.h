// kernels/cuda/emulated_device.h: owns the Device that runs the CUDA kernels in the emulator, without a GPU. It is slow
// and checks every access: an emulator finding is the device's error. An asynchronous transfer completes when the host
// waits for it, the last legal moment; a graph is a list of launches with their recorded parameters.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/simt/emulator.h"

namespace verbatim::cuda {

struct EmulatedDeviceConfig {
    // The launch, counted from 1, from which on every synchronize() returns an error. 0: never
    int64_t fail_at_launch = 0;
    int64_t fail_at_allocation = 0;  // likewise: this allocation returns null
    // Tiles of the self-test that grants tensor.sm90 (tensor_self_test.h); fail_at_launch counts its launches too. 0:
    // granted without a test, because the emulator's tensor cores are the model itself
    int64_t num_self_test_tiles = 0;
    int64_t resident_blocks = 4;  // few, so that each CTA takes several items of a list
};

// Borrows `emulator` for the device's lifetime.
std::unique_ptr<Device> make_emulated_device(simt::Emulator& emulator, const EmulatedDeviceConfig& config = {});

}  // namespace verbatim::cuda
