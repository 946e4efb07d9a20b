// kernels/cuda/fragments.h: weights as a device's matmuls read them.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/model/weights.h"
#include "reference/worker_pool.h"

namespace verbatim::cuda {

// For Device::matmul (DeviceMatrix).
std::vector<uint32_t> pack_pairs(const reference::MatrixView& weight, reference::WorkerPool& threads);

// For Device::tensor_matmul: [ceil(N/16)][ceil(K/16)][32 lanes][4 words]: of 16 outputs and 16 of K, a lane's part of
// mma's A (kernels/cuda/simt/types.h). Outputs beyond N and what is beyond K are +0.
std::vector<uint32_t> pack_fragments(const reference::MatrixView& weight, reference::WorkerPool& threads);

// For Device::route (DeviceRouter). router: [n_experts, num_k].
std::vector<float> pack_router(reference::VectorView router, int64_t n_experts, int64_t num_k);

}  // namespace verbatim::cuda
