// kernels/cuda/gpu_device.h: the CUDA kernels on a GPU, on one stream. Errors name the CUDA call, the operation and its
// shape.
#pragma once

#include <memory>

#include "engine/base/error.h"
#include "kernels/cuda/cuda_ops.h"

namespace verbatim::cuda {

// An error when there is no device, or its driver or architecture does not fit.
Result<std::unique_ptr<Device>> make_gpu_device(int ordinal = 0);

}  // namespace verbatim::cuda
