// kernels/cuda/emulated_device.h: the CUDA kernels on a machine without a GPU. Slow, and every access is looked at: what the
// emulator finds is the device's error.
#pragma once

#include <memory>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/simt/emulator.h"

namespace verbatim::cuda {

// `emulator` is borrowed for the device's life.
std::unique_ptr<Device> make_emulated_device(simt::Emulator& emulator);

}  // namespace verbatim::cuda
