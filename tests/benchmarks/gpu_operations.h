// tests/benchmarks/gpu_operations.h: the single operations of the CUDA engine: time of a call, and the bytes or
// operations of it.
#pragma once

#include <cstdint>

#include "engine/base/error.h"
#include "kernels/cuda/cuda_ops.h"

namespace verbatim::cuda {

struct OperationsConfig {
    bool tiny = false;            // shapes for the emulator
    double copy_bytes_per_s = 0;  // of the device's copy; 0: unknown
    uint64_t seed = 1;            // of all inputs
};

// Prints a line on stdout for every operation, shape and profile that the device supports: medians. Errors are the
// device's.
Status measure_operations(Device& device, const OperationsConfig& config);

}  // namespace verbatim::cuda
