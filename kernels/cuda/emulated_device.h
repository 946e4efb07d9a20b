// kernels/cuda/emulated_device.h: the CUDA kernels on a machine without a GPU. Slow, and every access is looked at:
// what the emulator finds is the device's error. A transfer that nobody waits for lands when somebody waits, the last
// legal moment; a graph is a list of launches with the parameters that they were recorded with.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/simt/emulator.h"

namespace verbatim::cuda {

struct EmulatedDeviceConfig {
    // Counted from 1; from there on every synchronize() says so. 0: never
    int64_t fail_at_launch = 0;
    int64_t fail_at_allocation = 0;  // there is no room
    // Of the self-test that grants tensor.sm90 (tensor_self_test.h); fail_at_launch counts it in. 0: granted unasked,
    // as the emulator's tensor cores are the model itself
    int64_t num_self_test_tiles = 0;
    int64_t resident_blocks = 4;  // few, so that a block takes several items of a list
};

// `emulator` is borrowed for the device's life.
std::unique_ptr<Device> make_emulated_device(simt::Emulator& emulator, const EmulatedDeviceConfig& config = {});

}  // namespace verbatim::cuda
