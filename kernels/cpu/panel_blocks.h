// kernels/cpu/panel_blocks.h: owns the order in which packing reads the blocks of a panel of 64 outputs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/packed_matrix.h"
#include "reference/model/weights.h"

namespace verbatim::cpu {

// Calls of(bytes, lane, block) for each block of each output of the panel. An output's blocks are read a tile at a
// time, and what the tile becomes stays in the cache.
template <typename Function>
void for_blocks_of_panel(const reference::MatrixView& blocks, int64_t panel, const Function& of) {
    constexpr int64_t kTileBytes = 512;
    constexpr int64_t kOutputsAhead = 4;
    const reference::BlockFormat& format = *blocks.format;
    const int64_t outputs = std::min(kPanelOutputs, blocks.rows - panel * kPanelOutputs);
    const int64_t row_bytes = format.row_bytes(blocks.cols);
    const std::byte* const from = blocks.blocks + panel * kPanelOutputs * row_bytes;
    const int64_t num_blocks = blocks.cols / format.num_weights;
    const int64_t tile = std::max<int64_t>(kTileBytes / format.num_bytes, 1);
    for (int64_t first = 0; first < num_blocks; first += tile) {
        for (int64_t lane = 0; lane < outputs; ++lane) {
            for (int64_t block = first; block < std::min(first + tile, num_blocks); ++block) {
                const std::byte* const bytes = from + lane * row_bytes + block * format.num_bytes;
                __builtin_prefetch(bytes + kOutputsAhead * row_bytes);
                of(bytes, lane, block);
            }
        }
    }
}

}  // namespace verbatim::cpu
