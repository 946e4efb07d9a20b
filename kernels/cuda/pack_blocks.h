// kernels/cuda/pack_blocks.h: owns the packing of quantised weights into the layout that the device's matmuls read
// (kernels/cuda/block_layout.h).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/cuda/block_layout.h"
#include "reference/model/weights.h"
#include "reference/worker_pool.h"

namespace verbatim::cuda {

// Null: the CUDA kernels do not take the type.
std::optional<WeightFormat> find_weight_format(const reference::BlockFormat& format);
// For DeviceMatrix: block_words() words. Outputs beyond the matrix and columns beyond K are 0. REQUIRES:
// find_weight_format has the type.
std::vector<uint32_t> pack_blocks(const reference::MatrixView& weight, reference::WorkerPool& threads);

}  // namespace verbatim::cuda
