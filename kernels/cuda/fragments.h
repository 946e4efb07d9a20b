// kernels/cuda/fragments.h: weights as the tensor cores' matmul reads them.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/model/weights.h"

namespace verbatim::cuda {

// [ceil(N/16)][ceil(K/16)][32 lanes][4 words]: of 16 outputs and 16 of K, a lane's part of mma's A (kernels/cuda/simt/types.h). Outputs
// beyond N and what is beyond K are +0.
std::vector<uint32_t> pack_fragments(const reference::MatrixView& weight);

}  // namespace verbatim::cuda
