// tests/benchmarks/gpu_operations.h: the operations of the CUDA engine by themselves: time of a call, and what it moves
// or computes.
#pragma once

#include <cstdint>

#include "engine/base/error.h"
#include "kernels/cuda/cuda_ops.h"

namespace verbatim::cuda {

struct OperationsConfig {
    bool tiny = false;            // shapes for the emulator
    double copy_bytes_per_s = 0;  // that the device's own copy reaches; 0: unknown
    uint64_t seed = 1;            // of all inputs
};

// A line on stdout for every operation, shape and profile that the device computes in: medians. An error is the
// device's.
Status measure_operations(Device& device, const OperationsConfig& config);

}  // namespace verbatim::cuda
