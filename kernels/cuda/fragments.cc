#include "kernels/cuda/fragments.h"

#include "kernels/cuda/simt/types.h"

namespace verbatim::cuda {

using simt::kMmaK;
using simt::kMmaRows;
using simt::kWarpSize;

std::vector<uint32_t> pack_fragments(const reference::MatrixView& weight) {
    const int64_t num_tiles = (weight.rows + kMmaRows - 1) / kMmaRows;
    const int64_t num_groups = (weight.cols + kMmaK - 1) / kMmaK;
    std::vector<uint32_t> words(static_cast<size_t>(num_tiles * num_groups * kWarpSize * 4));
    for (int64_t n = 0; n < weight.rows; ++n) {
        const auto row = weight.row(n);
        uint32_t* tile = words.data() + n / kMmaRows * num_groups * kWarpSize * 4;
        for (int64_t k = 0; k < weight.cols; ++k) {
            const int64_t lane = n % 8 * 4 + k % 8 / 2;
            const int64_t word = n % kMmaRows / 8 + k % kMmaK / 8 * 2;
            tile[(k / kMmaK * kWarpSize + lane) * 4 + word] |= uint32_t{row[k]} << (k % 2 * 16);
        }
    }
    return words;
}

}  // namespace verbatim::cuda
