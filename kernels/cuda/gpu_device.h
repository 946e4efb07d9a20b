// kernels/cuda/gpu_device.h: the CUDA kernels on a GPU, on one stream. Errors name the CUDA call, the operation and its
// shape.
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
    // Of the self-test that grants tensor.sm90 where compute capability is 9; 0: there is none, and it is refused
    int64_t num_self_test_tiles = kSelfTestTiles;
    // After an error the process's last device to end takes CUDA's context away, so that the next finds a fresh one:
    // for a program that is alone with CUDA. Another's memory and streams would go along
    bool resets_after_errors = false;
};

// An error when there is no device, or its driver or architecture does not fit.
Result<std::unique_ptr<Device>> make_gpu_device(const GpuDeviceConfig& config = {});

// That the kernels were compiled for, as compiled_for.h reads them.
std::string_view compiled_architectures();

}  // namespace verbatim::cuda
