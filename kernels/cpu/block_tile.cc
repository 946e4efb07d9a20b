#include "kernels/cpu/block_tile.h"

#include <algorithm>
#include <cstring>

#include "engine/base/check.h"
#include "kernels/transpose.h"

namespace verbatim::cpu {
namespace {

constexpr int64_t kRowFloats = reference::kDotChunk + 8;  // apart by no power of two: rows are read side by side

}  // namespace

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
    alignas(64) float rows[kSquareSide][kRowFloats];
    for (int64_t first = 0; first < outputs; first += kSquareSide) {
        const int64_t count = std::min(kSquareSide, outputs - first);
        for (int64_t r = 0; r < count; ++r) {
            for (int64_t k = 0; k < num_k; k += format.num_weights)
                format.dequantise(from + (first + r) * row_bytes + format.row_bytes(k), rows[r] + k);
        }
        for (int64_t r = count; r < kSquareSide; ++r) std::fill_n(rows[r], num_k, 0.0F);
        float* to = tile + first / lanes * 2 * lanes + first % lanes;
        for (int64_t k = 0; k < num_k; k += kSquareSide) {
            float columns[kSquareSide][kSquareSide];
            transpose_square(&rows[0][k], kRowFloats, &columns[0][0], kSquareSide);
            for (int64_t c = 0; c < kSquareSide; ++c)
                std::memcpy(to + (k + c) / 2 * 2 * kPanelOutputs + c % 2 * lanes, columns[c], sizeof(columns[c]));
        }
    }
}

}  // namespace verbatim::cpu
