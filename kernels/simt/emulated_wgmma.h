// kernels/simt/emulated_wgmma.h: owns a warpgroup's multiplication, executed when all of its threads have arrived.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/simt/types.h"

namespace verbatim::simt {

// A thread's operands of multiply_async (simt/types.h). Each sum is tensor_cores().of_groups (simt/emulated_mma.h) of a
// row of A and a row of the tile, or reference::tensor_group_f16.
struct GroupMmaPart {
    Four<uint32_t> a;
    float* sums;            // [num_columns / 2]
    int num_columns;        // a multiple of eight
    const std::byte* tile;  // equal in all threads; null: not at a legal address
    int group;              // one of the tile's groups: 16 of 64 k
    bool from_zero;
    // Of the warpgroup's first thread, for inline PTX.
    const uint16_t* columns = nullptr;  // [num_columns][16], instead of the tile
    const uint16_t* rows = nullptr;     // [64][16], instead of every thread's `a`
    bool is_f16 = false;
};
void complete_group_mma(std::span<void* const> parts);

}  // namespace verbatim::simt
