#include "kernels/packed_matrix.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/transpose.h"
#include "reference/numerics/bf16.h"

namespace verbatim {
namespace {

constexpr int64_t kBlockPairs = 16;  // per output: a cache line
constexpr int64_t kBlockLanes = 16;  // per pair: a cache line, and few enough rows that all are prefetched

// Packs pairs [0, kBlockPairs) of kBlockLanes rows; all pairs are whole.
void pack_block(const uint16_t* rows, int64_t stride, Pair* out) {
    for (int64_t j = 0; j < kBlockPairs; j += kSquareSide) {
        for (int64_t lane = 0; lane < kBlockLanes; lane += kSquareSide) {
            transpose_square(rows + lane * stride + 2 * j, stride, out + j * kPanelOutputs + lane, kPanelOutputs);
        }
    }
}

}  // namespace

static_assert(std::endian::native == std::endian::little, "two bf16 in a row are a pair as they lie");

void pack_panel(reference::MatrixView weight, int64_t panel, Pair* out) {
    const int64_t lanes = std::min(kPanelOutputs, weight.rows - panel * kPanelOutputs);
    const uint16_t* rows = weight.data + panel * kPanelOutputs * weight.cols;
    if (lanes < kPanelOutputs) std::fill_n(out, num_pairs(weight.cols) * kPanelOutputs, Pair{0});
    const int64_t whole_lanes = lanes / kBlockLanes * kBlockLanes;
    const int64_t whole_pairs = weight.cols / (2 * kBlockPairs) * kBlockPairs;
    for (int64_t lane = 0; lane < whole_lanes; lane += kBlockLanes) {
        for (int64_t j = 0; j < whole_pairs; j += kBlockPairs) {
            pack_block(rows + lane * weight.cols + 2 * j, weight.cols, out + j * kPanelOutputs + lane);
        }
    }
    for (int64_t lane = 0; lane < lanes; ++lane) {
        for (int64_t j = lane < whole_lanes ? whole_pairs : 0; j < num_pairs(weight.cols); ++j) {
            const uint16_t* two = rows + lane * weight.cols + 2 * j;
            out[j * kPanelOutputs + lane] = make_pair_of(two[0], 2 * j + 1 < weight.cols ? two[1] : uint16_t{0});
        }
    }
}

void pack_panel_int8(reference::MatrixView weight, int64_t panel, Int8Pair* out, float* scales) {
    const int64_t lanes = std::min(kPanelOutputs, weight.rows - panel * kPanelOutputs);
    std::fill_n(out, num_pairs(weight.cols) * kPanelOutputs, Int8Pair{0});
    std::fill_n(scales, kPanelOutputs, 0.0F);
    for (int64_t lane = 0; lane < lanes; ++lane) {
        const auto row = weight.row(panel * kPanelOutputs + lane);
        float greatest = 0.0F;
        for (const uint16_t bits : row) greatest = std::max(greatest, std::abs(reference::bf16_to_float(bits)));
        scales[lane] = greatest / 127.0F;
        const float inverse = greatest > 0.0F ? 127.0F / greatest : 0.0F;
        for (int64_t k = 0; k < weight.cols; ++k) {
            const int64_t value =
                std::clamp<int64_t>(std::lrint(reference::bf16_to_float(row[k]) * inverse), -127, 127);
            out[k / 2 * kPanelOutputs + lane] |= static_cast<Int8Pair>((value + kInt8Bias) << (k % 2 * 8));
        }
    }
}

}  // namespace verbatim
