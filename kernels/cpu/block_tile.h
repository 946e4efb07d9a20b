// kernels/cpu/block_tile.h: owns the dequantisation of a part of a panel, in the layout of FloatChunkArgs.
#pragma once

#include <cstdint>

#include "kernels/packed_matrix.h"
#include "reference/numerics/constants.h"

namespace verbatim::cpu {

inline constexpr int64_t kTileFloats = reference::kDotChunk * kPanelOutputs;

// Columns [first_k, first_k + num_k) of the panel's outputs, in binary32: [num_k / 2] pairs of groups of `lanes`
// outputs, evens before odds. Outputs beyond the matrix are +0. REQUIRES: whole blocks;
// num_k is even and at most kDotChunk; `tile` holds kTileFloats.
void fill_tile(const reference::MatrixView& blocks, int64_t panel, int64_t first_k, int64_t num_k, int64_t lanes,
               float* tile);

}  // namespace verbatim::cpu
