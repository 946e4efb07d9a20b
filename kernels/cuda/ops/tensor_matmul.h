// kernels/cuda/ops/tensor_matmul.h: owns the dot products on tensor cores. tensor.sm90
// (reference/numerics/tensor_sm90.h): an accumulator takes the 32 groups of 16 of a chunk in order from +0, and chunk
// sums are added in order. fast: any order. Outputs are the rows of mma's result and the batch's rows its columns, so 8
// rows fill an mma, and weights are stored in mma's register layout:
//
//   fragments  [ceil(N/16)][ceil(K/16)][32 lanes][4 words]: 16 outputs by 16 of K, a lane's part of A in 16 bytes
//   x          [num_rows][row_pairs] pairs, row_pairs = 8 · ceil(K/16), padded with +0
//
// A group of zeros adds nothing, so padding beyond N, K and the rows is +0.
#pragma once

#include "kernels/cuda/ops/rows.h"
#include "reference/numerics/tensor_sm90.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

inline constexpr int kGroupPairs = reference::kTensorGroup / 2;
inline constexpr int kChunkGroups = static_cast<int>(reference::kTensorChunk / reference::kTensorGroup);
inline constexpr int kFragmentWords = simt::kWarpSize * 4;  // 16 outputs by one group
static_assert(reference::kTensorGroup == simt::kMmaK, "a group is one mma");

struct TensorParameters {
    simt::Global<const uint32_t> x;
    simt::Global<const uint32_t> fragments;
    simt::Global<const float> bias;  // used when has_bias
    bool has_bias;
    int64_t num_tiles;   // of 16 outputs
    int64_t num_groups;  // of 16 of K
    KernelRows<float> out;

    [[nodiscard]] SIMT_FUNCTION int64_t row_pairs() const { return num_groups * kGroupPairs; }
    // A lane's sums in mma's layout: 16 outputs from tile · 16 on, 8 rows from first_row on.
    SIMT_FUNCTION void write(int64_t tile, int64_t first_row, const float (&total)[4]) const {
        SIMT_UNROLL
        for (int i = 0; i < 4; ++i) {
            const int64_t output = tile * simt::kMmaRows + simt::thread_x() / 4 + i / 2 * 8;
            const int64_t row = first_row + simt::thread_x() % 4 * 2 + i % 2;
            if (row < out.num_rows && output < out.width) {
                out.data[out.at(row, output)] = has_bias ? total[i] + bias[output] : total[i];
            }
        }
    }
};

// Many rows, in CTAs of (32, 8) threads: a grid of four warps of 16 · kWarpTiles outputs by two of 64 rows.
// Asynchronous copies keep kStages stages of 64 of K. Within a row of a stage the 16-byte vectors are swizzled by the
// row's low three bits, so that load_matrices has no bank conflicts.
template <int kWarpTiles, int kStages, bool kHasChunks>
struct TensorBlocks : TensorParameters {
    static constexpr int kWarpRows = 64;
    static constexpr int kOutputWarps = 4;
    static constexpr int kRowWarps = 2;
    static constexpr int kWarps = kOutputWarps * kRowWarps;
    static constexpr int kBlockTiles = kWarpTiles * kOutputWarps;
    static constexpr int kBlockRows = kWarpRows * kRowWarps;
    static constexpr int kStageGroups = 4;
    static constexpr int kStagePairs = kStageGroups * kGroupPairs;
    static constexpr int kWeightWords = kBlockTiles * kStageGroups * kFragmentWords;  // per stage
    static constexpr int kStageWords = kWeightWords + kBlockRows * kStagePairs;
    static constexpr int kSharedBytes = kStages * kStageWords * 4;
    static constexpr int kRowVectors = kStagePairs / 4;  // 16-byte vectors
    static_assert(kRowVectors == 8 && kChunkGroups % kStageGroups == 0 && kWarps % kStageGroups == 0);

    using Sums = float[kWarpTiles][kWarpRows / simt::kMmaColumns][4];

    SIMT_FUNCTION void operator()() const {
        SIMT_LARGE_SHARED(uint32_t, memory, kStages * kStageWords);
        const bool has_part = first_tile(simt::thread_y()) < num_tiles && first_row(simt::thread_y()) < out.num_rows;
        const auto num_stages = static_cast<int>((num_groups + kStageGroups - 1) / kStageGroups);
        Sums total = {};
        Sums acc = {};
        for (int stage = 0; stage < kStages - 1; ++stage) {
            const StageCopies first = stage_copies(memory, stage);
            for (int part = 0; part < kStageGroups; ++part) fetch_part(first, part);
            simt::commit_async();
        }
        SIMT_ONE_BY_ONE
        for (int stage = 0; stage < num_stages; ++stage) {
            simt::wait_async<kStages - 2>();
            simt::sync_block();
            multiply(memory, stage, has_part, acc);
            simt::commit_async();
            if constexpr (kHasChunks) {
                if ((stage + 1) * kStageGroups % kChunkGroups == 0) end_chunk(total, acc);
            }
        }
        if (!has_part) return;
        if constexpr (kHasChunks) end_chunk(total, acc);  // the last, partial chunk; +0 after a whole one
        // Recomputed: kept across the loop, the offsets would occupy registers
        const int warp = simt::opaque(simt::thread_y());
        write_all(first_tile(warp), first_row(warp), kHasChunks ? total : acc);
    }
    SIMT_FUNCTION static int64_t first_tile(int warp) {
        return int64_t{simt::block_x()} * kBlockTiles + warp % kOutputWarps * kWarpTiles;
    }
    SIMT_FUNCTION static int64_t first_row(int warp) {
        return int64_t{simt::block_y()} * kBlockRows + warp / kOutputWarps * kWarpRows;
    }
    SIMT_FUNCTION void write_all(int64_t first_tile, int64_t first_row, const Sums& sums) const {
        SIMT_UNROLL
        for (int i = 0; i < kWarpTiles; ++i) {
            SIMT_UNROLL
            for (int j = 0; j < kWarpRows / simt::kMmaColumns; ++j) {
                write(first_tile + i, first_row + j * simt::kMmaColumns, sums[i][j]);
            }
        }
    }

    // The data of a stage that a thread copies, from the thread's offsets on.
    struct StageCopies {
        simt::Shared<uint32_t> to;
        int64_t weights;  // [block's tiles][stage's groups] of fragments: all threads copy two tiles at a time
        int tiles_left;   // of the block
        int64_t rows;     // [block's rows][stage's pairs], vectors swizzled: 32 rows at a time
        int rows_left;
    };
    static constexpr int kTilesAtOnce = kWarps / kStageGroups;
    static constexpr int kRowsAtOnce = kWarps * simt::kWarpSize / kRowVectors;
    static constexpr int kTileTurns = kBlockTiles / kTilesAtOnce;
    static_assert(kBlockRows == kStageGroups * kRowsAtOnce, "some rows in each part");

    // Returns nothing to copy for a stage that does not exist.
    SIMT_FUNCTION StageCopies stage_copies(const simt::Shared<uint32_t>& memory, int stage) const {
        const int thread = simt::thread_y() * simt::kWarpSize + simt::thread_x();
        const int64_t group = int64_t{stage} * kStageGroups + simt::thread_y() % kStageGroups;
        const int64_t pair = int64_t{stage} * kStagePairs + thread % kRowVectors * 4;
        const int64_t tile = int64_t{simt::block_x()} * kBlockTiles + simt::thread_y() / kStageGroups;
        const int64_t row = int64_t{simt::block_y()} * kBlockRows + thread / kRowVectors;
        return {memory.slice(stage % kStages * kStageWords, kStageWords),
                (tile * num_groups + group) * kFragmentWords + simt::thread_x() * 4,
                group < num_groups ? static_cast<int>(num_tiles - tile) : 0, row * row_pairs() + pair,
                pair < row_pairs() ? static_cast<int>(out.num_rows - row) : 0};
    }
    // Copies one of kStageGroups parts.
    SIMT_FUNCTION void fetch_part(const StageCopies& of, int part) const {
        const int thread = simt::thread_y() * simt::kWarpSize + simt::thread_x();
        SIMT_UNROLL
        for (int first = 0; first < kTileTurns; first += kStageGroups) {
            const int tiles = (first + part) * kTilesAtOnce;
            if (tiles >= kBlockTiles) continue;
            simt::copy4_async(of.to, (tiles * kStageGroups * simt::kWarpSize + thread) * 4, fragments,
                              of.weights + tiles * num_groups * kFragmentWords, tiles < of.tiles_left);
        }
        const int rows = part * kRowsAtOnce;
        simt::copy4_async(of.to,
                          kWeightWords + rows * kStagePairs + place_of(thread / kRowVectors, thread % kRowVectors), x,
                          of.rows + rows * row_pairs(), rows < of.rows_left);
    }
    SIMT_FUNCTION static int place_of(int row, int vector) {
        return row * kStagePairs + (vector ^ (row % kRowVectors)) * 4;
    }

    // Multiplies a stage's groups in order, and requests parts of a later stage between them.
    SIMT_FUNCTION void multiply(const simt::Shared<uint32_t>& memory, int number, bool has_part, Sums& acc) const {
        const simt::Shared<uint32_t> stage = memory.slice(number % kStages * kStageWords, kStageWords);
        const int lane = simt::thread_x();
        const simt::Shared<uint32_t> rows = stage.slice(kWeightWords, kStageWords - kWeightWords);
        const int tile = simt::thread_y() % kOutputWarps * kWarpTiles;
        // load_matrices takes two tiles of 8 rows: the lower and the upper half of one group of each.
        const int row = simt::thread_y() / kOutputWarps * kWarpRows + lane / 16 * 8 + lane % 8;
        const StageCopies next = stage_copies(memory, number + kStages - 1);
        SIMT_ONE_BY_ONE  // unrolled, the prefetched offsets would take registers from the sums
            for (int g = 0; g < kStageGroups; ++g) {
            fetch_part(next, g);
            if (!has_part) continue;
            simt::Four<uint32_t> a[kWarpTiles];
            SIMT_UNROLL
            for (int i = 0; i < kWarpTiles; ++i) {
                a[i] = simt::load4(stage, ((tile + i) * kStageGroups + g) * kFragmentWords + lane * 4);
            }
            SIMT_UNROLL
            for (int j = 0; j < kWarpRows / simt::kMmaColumns; j += 2) {
                const simt::Four<uint32_t> b = simt::load_matrices(rows, place_of(row + j * 8, 2 * g + lane / 8 % 2));
                SIMT_UNROLL
                for (int i = 0; i < kWarpTiles; ++i) {
                    simt::mma(a[i], b.values[0], b.values[1], acc[i][j]);
                    simt::mma(a[i], b.values[2], b.values[3], acc[i][j + 1]);
                }
            }
        }
    }

    SIMT_FUNCTION static void end_chunk(Sums& total, Sums& acc) {
        SIMT_UNROLL
        for (int i = 0; i < kWarpTiles; ++i) {
            SIMT_UNROLL
            for (int j = 0; j < kWarpRows / simt::kMmaColumns; ++j) {
                SIMT_UNROLL
                for (int k = 0; k < 4; ++k) {
                    total[i][j][k] = total[i][j][k] + acc[i][j][k];
                    acc[i][j][k] = 0.0F;
                }
            }
        }
    }
};

// 192 outputs by 128 rows; sums and accumulators fill the registers.
struct TensorMatmul : TensorBlocks<3, 4, true> {};
// 256 outputs by 128 rows: a single chunk needs no sums besides the accumulators.
struct TensorFastMatmul : TensorBlocks<4, 3, false> {};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
