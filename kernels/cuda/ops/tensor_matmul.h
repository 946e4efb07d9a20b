// kernels/cuda/ops/tensor_matmul.h: dot products on tensor cores. Those of tensor.sm90
// (reference/numerics/tensor_sm90.h): an accumulator takes a chunk's 32 groups of 16 in order from +0, chunk sums are
// added in order. Those of fast: in any order. Outputs are the rows of mma's result and the batch's rows its columns,
// so that 8 rows are enough for one, and weights lie in memory as mma takes them:
//
//   fragments  [ceil(N/16)][ceil(K/16)][32 lanes][4 words]: 16 outputs by 16 of K, a lane's part of A in 16 bytes
//   x          [num_rows][row_pairs] pairs, row_pairs = 8 · ceil(K/16), padded with +0
//
// A group of zeros adds nothing, so what is beyond N, K and the rows is +0.
#pragma once

#include "kernels/cuda/ops/rows.h"
#include "reference/numerics/tensor_sm90.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

inline constexpr int kGroupPairs = reference::kTensorGroup / 2;
inline constexpr int kChunkGroups = static_cast<int>(reference::kTensorChunk / reference::kTensorGroup);
inline constexpr int kFragmentWords = simt::kWarpSize * 4;  // of 16 outputs by one group
static_assert(reference::kTensorGroup == simt::kMmaK, "a group is one mma");

struct TensorParameters {
    simt::Global<const uint32_t> x;
    simt::Global<const uint32_t> fragments;
    simt::Global<const float> bias;  // used when has_bias
    bool has_bias;
    int64_t num_tiles;   // of 16 outputs
    int64_t num_groups;  // of K
    KernelRows<float> out;

    [[nodiscard]] SIMT_FUNCTION int64_t row_pairs() const { return num_groups * kGroupPairs; }
    // Sums of a lane, as mma leaves them: 16 outputs from tile · 16 on, 8 rows from first_row on.
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

// Many rows, in blocks of (32, 8) threads: four warps of 16 · kWarpTiles outputs by two of 64 rows. Stages of 64 of K
// come kStages deep by asynchronous copies. Within a row of a stage the 16-byte vectors are exchanged by the row's last
// three bits, so that load_matrices meets every bank once.
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
    static constexpr int kWeightWords = kBlockTiles * kStageGroups * kFragmentWords;  // of a stage
    static constexpr int kStageWords = kWeightWords + kBlockRows * kStagePairs;
    static constexpr int kSharedBytes = kStages * kStageWords * 4;
    static constexpr int kRowVectors = kStagePairs / 4;  // of 16 bytes
    static_assert(kRowVectors == 8 && kChunkGroups % kStageGroups == 0 && kWarps % kStageGroups == 0);

    using Sums = float[kWarpTiles][kWarpRows / simt::kMmaColumns][4];

    SIMT_FUNCTION void operator()() const {
        SIMT_LARGE_SHARED(uint32_t, memory, kStages * kStageWords);
        const int64_t first_tile =
            int64_t{simt::block_x()} * kBlockTiles + simt::thread_y() % kOutputWarps * kWarpTiles;
        const int64_t first_row = int64_t{simt::block_y()} * kBlockRows + simt::thread_y() / kOutputWarps * kWarpRows;
        const bool has_part = first_tile < num_tiles && first_row < out.num_rows;
        const auto num_stages = static_cast<int>((num_groups + kStageGroups - 1) / kStageGroups);
        Sums total = {};
        Sums acc = {};
        for (int stage = 0; stage < kStages - 1; ++stage) fetch(memory, stage, num_stages);
        for (int stage = 0; stage < num_stages; ++stage) {
            simt::wait_async<kStages - 2>();
            simt::sync_block();
            fetch(memory, stage + kStages - 1, num_stages);
            if (!has_part) continue;
            multiply(memory.slice(stage % kStages * kStageWords, kStageWords), acc);
            if constexpr (kHasChunks) {
                if ((stage + 1) * kStageGroups % kChunkGroups == 0) end_chunk(total, acc);
            }
        }
        if (!has_part) return;
        if constexpr (kHasChunks) end_chunk(total, acc);  // the last one; after a whole one it is +0
        write_all(first_tile, first_row, kHasChunks ? total : acc);
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

    // Asks for a stage, if there is one; a group of copies either way.
    SIMT_FUNCTION void fetch(const simt::Shared<uint32_t>& memory, int stage, int num_stages) const {
        if (stage < num_stages) {
            const simt::Shared<uint32_t> to = memory.slice(stage % kStages * kStageWords, kStageWords);
            fetch_weights(to, int64_t{stage} * kStageGroups);
            fetch_rows(to.slice(kWeightWords, kStageWords - kWeightWords), int64_t{stage} * kStagePairs);
        }
        simt::commit_async();
    }
    // [block's tiles][stage's groups] of fragments: all threads take two tiles at a time.
    SIMT_FUNCTION void fetch_weights(const simt::Shared<uint32_t>& to, int64_t first_group) const {
        constexpr int kTilesAtOnce = kWarps / kStageGroups;
        const int64_t group = first_group + simt::thread_y() % kStageGroups;
        int64_t tile = int64_t{simt::block_x()} * kBlockTiles + simt::thread_y() / kStageGroups;
        int64_t from = (tile * num_groups + group) * kFragmentWords + simt::thread_x() * 4;
        int place = (simt::thread_y() * simt::kWarpSize + simt::thread_x()) * 4;
        SIMT_ONE_BY_ONE
        for (int i = 0; i < kBlockTiles; i += kTilesAtOnce) {
            simt::copy4_async(to, place, fragments, from, tile < num_tiles && group < num_groups);
            tile += kTilesAtOnce;
            from += kTilesAtOnce * num_groups * kFragmentWords;
            place += kTilesAtOnce * kStageGroups * kFragmentWords;
        }
    }
    // [block's rows][stage's pairs], the vectors of a row exchanged: all threads take 32 rows at a time.
    SIMT_FUNCTION void fetch_rows(const simt::Shared<uint32_t>& to, int64_t first_pair) const {
        constexpr int kRowsAtOnce = kWarps * simt::kWarpSize / kRowVectors;
        const int thread = simt::thread_y() * simt::kWarpSize + simt::thread_x();
        const int vector = thread % kRowVectors;
        const int64_t pair = first_pair + vector * 4;
        int64_t row = int64_t{simt::block_y()} * kBlockRows + thread / kRowVectors;
        int place = place_of(thread / kRowVectors, vector);
        SIMT_ONE_BY_ONE
        for (int i = 0; i < kBlockRows; i += kRowsAtOnce) {
            simt::copy4_async(to, place, x, row * row_pairs() + pair, row < out.num_rows && pair < row_pairs());
            row += kRowsAtOnce;
            place += kRowsAtOnce * kStagePairs;
        }
    }
    SIMT_FUNCTION static int place_of(int row, int vector) {
        return row * kStagePairs + (vector ^ (row % kRowVectors)) * 4;
    }

    // A stage's groups, in order.
    SIMT_FUNCTION void multiply(const simt::Shared<uint32_t>& stage, Sums& acc) const {
        const int lane = simt::thread_x();
        const simt::Shared<uint32_t> rows = stage.slice(kWeightWords, kStageWords - kWeightWords);
        const int first_tile = simt::thread_y() % kOutputWarps * kWarpTiles;
        // load_matrices takes two tiles of 8 rows, the lower and the upper half of a group of each.
        const int row = simt::thread_y() / kOutputWarps * kWarpRows + lane / 16 * 8 + lane % 8;
        SIMT_UNROLL
        for (int g = 0; g < kStageGroups; ++g) {
            simt::Four<uint32_t> a[kWarpTiles];
            SIMT_UNROLL
            for (int i = 0; i < kWarpTiles; ++i) {
                a[i] = simt::load4(stage, ((first_tile + i) * kStageGroups + g) * kFragmentWords + lane * 4);
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
// 256 outputs by 128 rows: one chunk needs no sums beside the accumulators.
struct TensorFastMatmul : TensorBlocks<4, 3, false> {};

// Some rows: 8 · kRowTiles of them, and more than ops/tensor_matvec.h takes. A warp computes 16 outputs over one chunk,
// straight from memory: 16 bytes of weights for each lane and group. The chunks of an output are computed by
// chunk_warps warps side by side and added in order by the first of them. Blocks of (32, 8) threads.
template <int kRowTiles>
struct TensorMatvec : TensorParameters {
    int chunk_warps;  // 1, 2, 4 or 8
    static constexpr int kWarps = 8;
    static constexpr int kAhead = 4;  // groups whose loads are under way at once
    static constexpr int kLaneSums = kRowTiles * 4;
    using Sums = float[kRowTiles][4];

    SIMT_FUNCTION void operator()() const {
        SIMT_SHARED(float, sums, kWarps* kLaneSums* simt::kWarpSize);
        const int warp = simt::thread_y();
        const int chunk = warp % chunk_warps;
        const int64_t tile = int64_t{simt::block_x()} * (kWarps / chunk_warps) + warp / chunk_warps;
        const int64_t first_row = int64_t{simt::block_y()} * kRowTiles * simt::kMmaColumns;
        const Inputs inputs = inputs_from(first_row);
        Sums total = {};
        for (int64_t first = 0; first < num_groups; first += int64_t{chunk_warps} * kChunkGroups) {
            Sums acc = {};
            if (tile < num_tiles) add_chunk(tile, inputs, first + chunk * kChunkGroups, acc);
            for (int i = 0; i < kLaneSums; ++i) sums[place_of(warp, i)] = acc[i / 4][i % 4];
            simt::sync_block();
            for (int c = 0; chunk == 0 && c < chunk_warps && first + c * kChunkGroups < num_groups; ++c) {
                SIMT_UNROLL
                for (int i = 0; i < kLaneSums; ++i) {
                    total[i / 4][i % 4] = total[i / 4][i % 4] + sums[place_of(warp + c, i)];
                }
            }
            simt::sync_block();
        }
        if (chunk != 0 || tile >= num_tiles) return;
        SIMT_UNROLL
        for (int j = 0; j < kRowTiles; ++j) write(tile, first_row + j * simt::kMmaColumns, total[j]);
    }
    SIMT_FUNCTION static int place_of(int warp, int i) {
        return (warp * kLaneSums + i) * simt::kWarpSize + simt::thread_x();
    }

    // This lane's rows of the inputs, from its first pair on.
    struct Inputs {
        simt::Global<const uint32_t> rows[kRowTiles];
        bool there[kRowTiles];
    };
    SIMT_FUNCTION Inputs inputs_from(int64_t first_row) const {
        Inputs inputs;
        SIMT_UNROLL
        for (int j = 0; j < kRowTiles; ++j) {
            const int64_t row = first_row + j * simt::kMmaColumns + simt::thread_x() / 4;
            inputs.there[j] = row < out.num_rows;
            const int64_t first = row * row_pairs() + simt::thread_x() % 4;
            inputs.rows[j] = x.slice(first, row_pairs() - simt::thread_x() % 4);
        }
        return inputs;
    }

    // The chunk that begins at group `begin`.
    SIMT_FUNCTION void add_chunk(int64_t tile, const Inputs& inputs, int64_t begin, Sums& acc) const {
        constexpr int kPairs = kAhead * kGroupPairs;
        const int64_t left = num_groups - begin;
        const auto count = static_cast<int>(left < kChunkGroups ? left : int64_t{kChunkGroups});
        const int64_t weights = (tile * num_groups + begin) * kFragmentWords + simt::thread_x() * 4;
        simt::Global<const uint32_t> rows[kRowTiles];  // they go along, so that they are not computed again and again
        SIMT_UNROLL
        for (int j = 0; j < kRowTiles; ++j) rows[j] = inputs.rows[j].slice(begin * kGroupPairs, left * kGroupPairs);
        for (int group = 0; group < count; group += kAhead) {
            simt::Four<uint32_t> a[kAhead];
            uint32_t b[kAhead][kRowTiles][2];
            SIMT_UNROLL
            for (int i = 0; i < kAhead; ++i) {
                if (group + i >= count) continue;
                a[i] = simt::load4(fragments, weights + (group + i) * kFragmentWords);
                SIMT_UNROLL
                for (int j = 0; j < kRowTiles; ++j) {
                    b[i][j][0] = inputs.there[j] ? rows[j][i * kGroupPairs] : 0U;
                    b[i][j][1] = inputs.there[j] ? rows[j][i * kGroupPairs + 4] : 0U;
                }
            }
            SIMT_UNROLL
            for (int j = 0; j < kRowTiles; ++j) rows[j] = rows[j].slice(kPairs, (left - group) * kGroupPairs - kPairs);
            SIMT_UNROLL
            for (int i = 0; i < kAhead; ++i) {
                if (group + i >= count) continue;
                SIMT_UNROLL
                for (int j = 0; j < kRowTiles; ++j) simt::mma(a[i], b[i][j][0], b[i][j][1], acc[j]);
            }
        }
    }
};
struct TensorMatvec16 : TensorMatvec<2> {};
struct TensorMatvec32 : TensorMatvec<4> {};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
