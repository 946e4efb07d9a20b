// kernels/cuda/gpu_device.h: owns the Device that runs the CUDA kernels on a GPU, on one stream. Errors name the CUDA
// call, the operation and its shape.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "engine/base/error.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/tensor_self_test.h"

namespace verbatim::cuda {

struct GpuDeviceConfig {
    int ordinal = 0;
    // Tiles of the self-test that grants tensor.sm90 on compute capability 9. 0: no test, and tensor.sm90 is refused
    int64_t num_self_test_tiles = kSelfTestTiles;
    // After an error, the last device of the process to be destroyed resets the CUDA context, so that the next device
    // starts with a fresh one. Only for a program without other uses of CUDA: the reset frees all memory and streams
    bool resets_after_errors = false;
};

// Returns an error when there is no device, or when its driver or architecture does not fit.
Result<std::unique_ptr<Device>> make_gpu_device(const GpuDeviceConfig& config = {});

// The architectures that the kernels were compiled for, in the form that compiled_for.h reads.
std::string_view compiled_architectures();

}  // namespace verbatim::cuda
