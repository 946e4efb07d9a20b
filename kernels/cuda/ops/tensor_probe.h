// kernels/cuda/ops/tensor_probe.h: owns single multiplications on tensor cores without further processing, by a warp's
// mma and by a warpgroup's wgmma, for a device's self-test (kernels/cuda/tensor_self_test.h).
#pragma once

#include <cstdint>

#include "kernels/simt/simt.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

// Tiles: sums = c + A · B. A word is two values of k. CTAs of (32, kWarps) threads, one warp per tile.
struct ProbeParameters {
    static constexpr int kWarps = 4;
    static constexpr int kLinePairs = simt::kMmaK / 2;
    static constexpr int kSums = simt::kMmaRows * simt::kMmaColumns;  // per tile

    simt::Global<const uint32_t> a;  // [num_tiles, 16, 8]
    simt::Global<const uint32_t> b;  // [num_tiles, 8, 8]: columns
    simt::Global<const float> c;     // [num_tiles, 16, 8]
    simt::Global<float> sums;        // [num_tiles, 16, 8]
    int64_t num_tiles;

    SIMT_FUNCTION static int64_t this_tile() { return int64_t{simt::block_x()} * kWarps + simt::thread_y(); }
    // This lane's words of A's 16 rows.
    SIMT_FUNCTION simt::Four<uint32_t> rows_of(int64_t tile) const {
        const int64_t upper = (tile * simt::kMmaRows + simt::thread_x() / 4) * kLinePairs + simt::thread_x() % 4;
        const int64_t lower = upper + 8 * kLinePairs;
        return {{a[upper], a[lower], a[upper + 4], a[lower + 4]}};
    }
    // Offset of this lane's i-th element in c and sums.
    SIMT_FUNCTION static int64_t place(int64_t tile, int i) {
        const int64_t first = tile * kSums + simt::thread_x() / 4 * simt::kMmaColumns + simt::thread_x() % 4 * 2;
        return first + i / 2 * (8 * simt::kMmaColumns) + i % 2;
    }
};

// One mma.
struct TensorProbe : ProbeParameters {
    SIMT_FUNCTION void operator()() const {
        const int64_t tile = this_tile();
        if (tile >= num_tiles) return;
        const int64_t column = (tile * simt::kMmaColumns + simt::thread_x() / 4) * kLinePairs + simt::thread_x() % 4;
        float acc[4];
        SIMT_UNROLL
        for (int i = 0; i < 4; ++i) acc[i] = c[place(tile, i)];
        simt::mma(rows_of(tile), b[column], b[column + 4], acc);
        SIMT_UNROLL
        for (int i = 0; i < 4; ++i) sums[place(tile, i)] = acc[i];
    }
};

// One wgmma: the rows of a warpgroup's four tiles by the columns of all four; each warp keeps the columns of its tile.
// Columns from 32 on are +0.
struct HopperProbe : ProbeParameters {
    static constexpr int kThreads = kWarps * simt::kWarpSize;
    static constexpr int kResidentBlocks = 1;
    static constexpr int kColumns = 64;
    static constexpr int kWords = kColumns * simt::kTileRowWords;
    static constexpr int kSharedBytes = kWords * 4;
    static_assert(kThreads == simt::kWarpgroupSize);

    SIMT_FUNCTION void operator()() const {
        SIMT_LARGE_SHARED(uint32_t, columns, kWords);
        const int64_t tile = this_tile();
        const bool is_there = tile < num_tiles;
        bring_columns(columns);
        simt::fence_async();
        simt::sync_block();
        simt::Fragment rows;
        simt::Accumulators<kColumns> acc;
        rows.set(is_there ? rows_of(tile) : simt::Four<uint32_t>{});
        SIMT_UNROLL
        for (int i = 0; i < acc.kSums; ++i) {
            acc.set(i, is_there && i / 4 == simt::thread_y() ? static_cast<float>(c[place(tile, i % 4)]) : 0.0F);
        }
        simt::multiply_fence();
        simt::multiply_async(acc, rows, simt::swizzled_tile(columns, 0), 0, false);
        simt::commit_multiply();
        simt::wait_multiply<0>();
        SIMT_UNROLL
        for (int i = 0; i < 4 * kWarps; ++i) {
            if (is_there && i / 4 == simt::thread_y()) sums[place(tile, i % 4)] = acc[i];
        }
    }
    // Copies the CTA's columns to rows of a swizzled tile, first 16 of k.
    SIMT_FUNCTION void bring_columns(const simt::Shared<uint32_t>& columns) const {
        const int64_t first = int64_t{simt::block_x()} * kWarps * simt::kMmaColumns;
        const int64_t end = num_tiles * simt::kMmaColumns;
        const int thread = simt::thread_y() * simt::kWarpSize + simt::thread_x();
        for (int i = thread; i < kColumns * kLinePairs; i += kThreads) {
            const int column = i / kLinePairs;
            const int pair = i % kLinePairs;
            const bool is_there = column < kWarps * simt::kMmaColumns && first + column < end;
            columns[simt::tile_word(column, pair / 4) + pair % 4] =
                is_there ? static_cast<uint32_t>(b[(first + column) * kLinePairs + pair]) : 0U;
        }
    }
};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
