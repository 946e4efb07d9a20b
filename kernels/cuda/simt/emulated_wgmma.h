// kernels/cuda/simt/emulated_wgmma.h: what the threads of a warpgroup multiply together, once all of them have brought
// their parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/simt/types.h"

namespace verbatim::simt {

// A thread's part of multiply_async (simt/types.h). Each sum is tensor_cores().of_groups (simt/emulated_mma.h) of a
// row of A and a row of the tile.
struct GroupMmaPart {
    Four<uint32_t> a;
    float* sums;            // [num_columns / 2]
    int num_columns;        // multiples of eight
    const std::byte* tile;  // the same for all; null: it does not lie where it should
    int group;              // 16 of the tile's 64 k
    bool from_zero;
};
void complete_group_mma(std::span<void* const> parts);

}  // namespace verbatim::simt
