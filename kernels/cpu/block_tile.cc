#include "kernels/cpu/block_tile.h"

#include <algorithm>
#include <cstring>

#include "engine/base/check.h"

namespace verbatim::cpu {
namespace {

constexpr int64_t kSide = 4;                              // of a square that is transposed in registers
constexpr int64_t kRowFloats = reference::kDotChunk + 8;  // apart by no power of two: rows are read side by side

using Side = float __attribute__((vector_size(kSide * sizeof(float))));
using Places = int32_t __attribute__((vector_size(kSide * sizeof(int32_t))));

Side load_side(const float* from) {
    Side side;
    std::memcpy(&side, from, sizeof(side));
    return side;
}

// columns[c][r] = rows[r · kRowFloats + c]
void transpose(const float* rows, Side* columns) {
    const Side a = load_side(rows);
    const Side b = load_side(rows + kRowFloats);
    const Side c = load_side(rows + 2 * kRowFloats);
    const Side d = load_side(rows + 3 * kRowFloats);
    const Side ab_low = __builtin_shuffle(a, b, Places{0, 4, 1, 5});
    const Side cd_low = __builtin_shuffle(c, d, Places{0, 4, 1, 5});
    const Side ab_high = __builtin_shuffle(a, b, Places{2, 6, 3, 7});
    const Side cd_high = __builtin_shuffle(c, d, Places{2, 6, 3, 7});
    columns[0] = __builtin_shuffle(ab_low, cd_low, Places{0, 1, 4, 5});
    columns[1] = __builtin_shuffle(ab_low, cd_low, Places{2, 3, 6, 7});
    columns[2] = __builtin_shuffle(ab_high, cd_high, Places{0, 1, 4, 5});
    columns[3] = __builtin_shuffle(ab_high, cd_high, Places{2, 3, 6, 7});
}

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
    alignas(64) float rows[kSide][kRowFloats];
    for (int64_t first = 0; first < outputs; first += kSide) {
        const int64_t count = std::min(kSide, outputs - first);
        for (int64_t r = 0; r < count; ++r) {
            for (int64_t k = 0; k < num_k; k += format.num_weights)
                format.dequantise(from + (first + r) * row_bytes + format.row_bytes(k), rows[r] + k);
        }
        for (int64_t r = count; r < kSide; ++r) std::fill_n(rows[r], num_k, 0.0F);
        float* to = tile + first / lanes * 2 * lanes + first % lanes;
        for (int64_t k = 0; k < num_k; k += kSide) {
            Side columns[kSide];
            transpose(&rows[0][k], columns);
            for (int64_t c = 0; c < kSide; ++c)
                std::memcpy(to + (k + c) / 2 * 2 * kPanelOutputs + c % 2 * lanes, &columns[c], sizeof(Side));
        }
    }
}

}  // namespace verbatim::cpu
