// kernels/cuda/ops/tensor_probe.h: single multiplications on tensor cores, as they are: what a device's self-test
// (kernels/cuda/tensor_self_test.h) looks at.
#pragma once

#include <cstdint>

#include "kernels/cuda/simt/simt.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

// A warp for a tile, in blocks of (32, kWarps) threads: sums = c + A · B, one mma. Pairs of k are words.
struct TensorProbe {
    static constexpr int kWarps = 4;
    static constexpr int kLinePairs = simt::kMmaK / 2;
    static constexpr int kSums = simt::kMmaRows * simt::kMmaColumns;  // of a tile

    simt::Global<const uint32_t> a;  // [num_tiles, 16, 8]
    simt::Global<const uint32_t> b;  // [num_tiles, 8, 8]: columns
    simt::Global<const float> c;     // [num_tiles, 16, 8]
    simt::Global<float> sums;        // [num_tiles, 16, 8]
    int64_t num_tiles;

    SIMT_FUNCTION void operator()() const {
        const int64_t tile = int64_t{simt::block_x()} * kWarps + simt::thread_y();
        if (tile >= num_tiles) return;
        const int line = simt::thread_x() / 4;
        const int pair = simt::thread_x() % 4;
        const int64_t upper = (tile * simt::kMmaRows + line) * kLinePairs + pair;
        const int64_t lower = upper + 8 * kLinePairs;
        const int64_t column = (tile * simt::kMmaColumns + line) * kLinePairs + pair;
        const simt::Four<uint32_t> rows{{a[upper], a[lower], a[upper + 4], a[lower + 4]}};
        const int64_t first = tile * kSums + line * simt::kMmaColumns + 2 * pair;
        float acc[4];
        SIMT_UNROLL
        for (int i = 0; i < 4; ++i) acc[i] = c[first + i / 2 * (8 * simt::kMmaColumns) + i % 2];
        simt::mma(rows, b[column], b[column + 4], acc);
        SIMT_UNROLL
        for (int i = 0; i < 4; ++i) sums[first + i / 2 * (8 * simt::kMmaColumns) + i % 2] = acc[i];
    }
};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
