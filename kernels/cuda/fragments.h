// kernels/cuda/fragments.h: owns the packing of weights into the layouts that the device's matmuls read.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/model/weights.h"
#include "reference/worker_pool.h"

namespace verbatim::cuda {

// For Device::matmul (DeviceMatrix).
std::vector<uint32_t> pack_pairs(const reference::MatrixView& weight, reference::WorkerPool& threads);

// For Device::tensor_matmul: [ceil(N/16)][ceil(K/16)][32 lanes][4 words]. A fragment is 16 outputs by 16 of K; each
// lane's four words are its part of mma's A (kernels/simt/types.h). Outputs beyond N and elements beyond K are +0.
std::vector<uint32_t> pack_fragments(const reference::MatrixView& weight, reference::WorkerPool& threads);

// For Device::route (DeviceRouter). router: [n_experts, num_k].
std::vector<float> pack_router(reference::VectorView router, int64_t n_experts, int64_t num_k);

}  // namespace verbatim::cuda
