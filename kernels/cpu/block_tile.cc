#include "kernels/cpu/block_tile.h"

#include <algorithm>

#include "engine/base/check.h"

namespace verbatim::cpu {

void fill_tile(const reference::MatrixView& blocks, int64_t panel, int64_t first_k, int64_t num_k, int64_t lanes,
               float* tile) {
    static_assert(reference::kDotChunk % 256 == 0, "a chunk is whole blocks");
    const reference::BlockFormat& format = *blocks.format;
    CHECK_EQ(first_k % format.num_weights, 0);
    CHECK_EQ(num_k % format.num_weights, 0);
    const int64_t first_output = panel * kPanelOutputs;
    const int64_t outputs = std::min(kPanelOutputs, blocks.rows - first_output);
    if (outputs < kPanelOutputs) std::fill_n(tile, num_k * kPanelOutputs, 0.0F);
    const int64_t row_bytes = format.row_bytes(blocks.cols);
    const std::byte* from = blocks.blocks + first_output * row_bytes + format.row_bytes(first_k);
    float row[reference::kDotChunk];
    for (int64_t output = 0; output < outputs; ++output) {
        for (int64_t k = 0; k < num_k; k += format.num_weights)
            format.dequantise(from + output * row_bytes + format.row_bytes(k), row + k);
        float* to = tile + output / lanes * 2 * lanes + output % lanes;
        for (int64_t k = 0; k < num_k; k += 2) {
            to[k * kPanelOutputs] = row[k];
            to[k * kPanelOutputs + lanes] = row[k + 1];
        }
    }
}

}  // namespace verbatim::cpu
