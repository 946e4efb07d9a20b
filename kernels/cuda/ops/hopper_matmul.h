// kernels/cuda/ops/hopper_matmul.h: owns the matmuls of ops/tensor_matmul.h for many rows on Hopper, warp-specialised:
// one producer warpgroup loads stages, two consumer warpgroups issue asynchronous wgmma. Sums are those of mma, group
// by group: weights are stored as mma fragments, which the consumers load from shared memory into registers as wgmma's
// A, and the inputs' rows are a swizzled tile, wgmma's B:
//
//   stage  [kBlockTiles tiles of 16 outputs][kStageGroups][128 words] of fragments, [kColumns rows][32 words] of x
//
// Bulk copies bring the weights, one tile's stage each. 16-byte cp.async copies bring the rows, with zeros for rows
// that do not exist; a proxy fence makes them visible to wgmma.
//
// CTAs that run concurrently share data in L2. The rasterisation order goes through up to kRasterGroupBlocks blocks of
// outputs, then through the same outputs for the next rows: 132 CTAs cover 11 by 12 blocks, at K = 8192 some 60 MB of
// weights and rows. In row-major order of a grid of 64 by 43 they would cover 140 MB.
#pragma once

#include "kernels/cuda/ops/tensor_matmul.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

template <int kColumns, int kStages, bool kHasChunks>
struct HopperBlocks : TensorParameters {
    static constexpr int kConsumers = 2;  // warpgroups
    static constexpr int kGroupWarps = simt::kWarpgroupSize / simt::kWarpSize;
    static constexpr int kWarps = (1 + kConsumers) * kGroupWarps;
    static constexpr int kThreads = kWarps * simt::kWarpSize;
    static constexpr int kResidentBlocks = 1;
    static constexpr int kBlockTiles = kConsumers * kGroupWarps;  // tiles of 16 outputs, one per consumer warp
    static constexpr int kBlockRows = kColumns;
    static constexpr int kStageGroups = 4;
    static constexpr int kStagePairs = kStageGroups * kGroupPairs;
    static constexpr int kTileWords = kStageGroups * kFragmentWords;  // weights of 16 outputs in a stage
    static constexpr int kWeightWords = kBlockTiles * kTileWords;
    static constexpr int kStageWords = kWeightWords + kColumns * kStagePairs;
    static constexpr int kSharedBytes = kStages * kStageWords * 4;
    static constexpr int kRowVectors = kStagePairs / 4;  // 16-byte vectors
    static constexpr int kRowStagesInFlight = 2;    // stages whose rows are in flight while further ones are requested
    static constexpr int kRasterGroupBlocks = 12;   // most blocks of outputs per raster group
    static constexpr int kProducerRegisters = 40;   // per producer thread
    static constexpr int kConsumerRegisters = 232;  // per consumer thread
    static_assert(kStagePairs == simt::kTileRowWords && kWeightWords * 4 % simt::kTileBytes == 0);
    static_assert(kChunkGroups % kStageGroups == 0 && kRowStagesInFlight < kStages);
    static_assert((kProducerRegisters + kConsumers * kConsumerRegisters) * simt::kWarpgroupSize <= 65536);

    using Sums = simt::Accumulators<kColumns>;
    using Totals = float[kHasChunks ? Sums::kSums : 1];

    SIMT_FUNCTION void operator()() const {
        SIMT_LARGE_SHARED(uint32_t, memory, kStages * kStageWords);
        SIMT_BARRIERS(full, kStages);   // rows of each producer thread, and the weights' bytes
        SIMT_BARRIERS(empty, kStages);  // one arrival per consumer warp
        const int warp = simt::thread_y();
        const Place place = this_place();
        const auto num_stages = static_cast<int>((num_groups + kStageGroups - 1) / kStageGroups);
        if (warp == 0 && simt::thread_x() == 0) {
            for (int i = 0; i < kStages; ++i) {
                full[i].init(simt::kWarpgroupSize + 1);
                empty[i].init(kConsumers * kGroupWarps);
            }
            simt::fence_async();
        }
        simt::sync_block();
        if (warp < kGroupWarps) {
            simt::setmaxnreg_dec<kProducerRegisters>();
            produce(place, memory, full, empty, num_stages);
        } else {
            simt::setmaxnreg_inc<kConsumerRegisters>();
            consume(place, memory, full, empty, num_stages);
        }
    }

    struct Place {
        int64_t first_tile;
        int64_t first_row;
    };
    SIMT_FUNCTION Place this_place() const {
        const auto rows = static_cast<int>((out.num_rows + kBlockRows - 1) / kBlockRows);
        return place_of(simt::block_y() * simt::blocks_x() + simt::block_x(), simt::blocks_x(), rows);
    }
    // The output and row block of CTA `number` in a grid of `outputs` by `rows` blocks.
    SIMT_FUNCTION static Place place_of(int number, int outputs, int rows) {
        const int parts = (outputs + kRasterGroupBlocks - 1) / kRasterGroupBlocks;
        const int whole = (outputs + parts - 1) / parts;
        const int first = number / (whole * rows) * whole;
        const int left = outputs - first;
        const int beside = left < whole ? left : whole;
        const int in_group = number - first * rows;
        return {int64_t{first + in_group % beside} * kBlockTiles, int64_t{in_group / beside} * kBlockRows};
    }

    // --- producer

    SIMT_FUNCTION void produce(const Place& block, const simt::Shared<uint32_t>& memory, const simt::Barriers& full,
                               const simt::Barriers& empty, int num_stages) const {
        SIMT_ONE_BY_ONE
        for (int stage = 0; stage < num_stages + kRowStagesInFlight; ++stage) {
            if (stage < num_stages) {
                const int slot = stage % kStages;
                const simt::Shared<uint32_t> to = memory.slice(slot * kStageWords, kStageWords);
                const int turn = stage / kStages + 1;  // use of the slot: before its first use it is free
                empty[slot].wait(turn % 2);
                if (simt::thread_y() == 0 && simt::thread_x() == 0) {
                    bring_weights(block, to, stage, full[slot]);
                }
                bring_rows(block, to.slice(kWeightWords, kColumns * kStagePairs), int64_t{stage} * kStagePairs);
            }
            simt::commit_async();
            if (stage < kRowStagesInFlight) continue;
            simt::wait_async<kRowStagesInFlight>();
            simt::fence_async();
            full[(stage - kRowStagesInFlight) % kStages].arrive();
        }
        simt::wait_async<0>();
    }
    // Called by one thread: the existing groups of a stage, for each existing tile of the CTA.
    SIMT_FUNCTION void bring_weights(const Place& block, const simt::Shared<uint32_t>& to, int stage,
                                     const simt::Barrier& full) const {
        const int64_t first_group = int64_t{stage} * kStageGroups;
        const int64_t first_tile = block.first_tile;
        const int64_t left = num_groups - first_group;
        const int words = static_cast<int>(left < kStageGroups ? left : kStageGroups) * kFragmentWords;
        const int64_t tiles_left = num_tiles - first_tile;
        const int tiles = static_cast<int>(tiles_left < kBlockTiles ? tiles_left : kBlockTiles);
        full.expect_bytes(tiles * words * 4);
        SIMT_ONE_BY_ONE
        for (int i = 0; i < tiles; ++i) {
            simt::bulk_copy(to, i * kTileWords, fragments,
                            ((first_tile + i) * num_groups + first_group) * kFragmentWords, words, full);
        }
    }
    // [block's rows][stage's pairs], a swizzled tile: a warpgroup copies 16 rows at a time.
    SIMT_FUNCTION void bring_rows(const Place& block, const simt::Shared<uint32_t>& to, int64_t first_pair) const {
        constexpr int kRowsAtOnce = simt::kWarpgroupSize / kRowVectors;
        const int thread = simt::thread_y() * simt::kWarpSize + simt::thread_x();
        const int vector = thread % kRowVectors;
        const int64_t pair = first_pair + vector * 4;
        const int64_t row = block.first_row + thread / kRowVectors;
        const int64_t from = row * row_pairs() + pair;
        const int64_t left = pair < row_pairs() ? out.num_rows - row : 0;
        const int place = simt::tile_word(thread / kRowVectors, vector);
        SIMT_UNROLL
        for (int i = 0; i < kBlockRows; i += kRowsAtOnce) {
            simt::copy4_async(to, place + i * kStagePairs, x, from + i * row_pairs(), i < left);
        }
    }

    // --- consumers

    SIMT_FUNCTION void consume(const Place& block, const simt::Shared<uint32_t>& memory, const simt::Barriers& full,
                               const simt::Barriers& empty, int num_stages) const {
        const int warp = simt::thread_y() - kGroupWarps;
        const int64_t tile = block.first_tile + warp;
        Sums acc;
        Totals total = {};
        SIMT_ONE_BY_ONE
        for (int stage = 0; stage < num_stages; ++stage) {
            const int slot = stage % kStages;
            const int turn = stage / kStages;
            full[slot].wait(turn % 2);
            const bool begins = stage * kStageGroups % kChunkGroups == 0;
            multiply(memory, slot, tile < num_tiles ? num_groups - int64_t{stage} * kStageGroups : 0, warp,
                     kHasChunks ? begins : stage == 0, acc);
            simt::sync_warp();
            if (simt::thread_x() == 0) empty[slot].arrive();
            if constexpr (kHasChunks) {
                if ((stage + 1) * kStageGroups % kChunkGroups == 0 || stage + 1 == num_stages) end_chunk(total, acc);
            }
        }
        SIMT_UNROLL
        for (int j = 0; j < kColumns / simt::kMmaColumns; ++j) {
            float sums[4];
            SIMT_UNROLL
            for (int i = 0; i < 4; ++i) sums[i] = sum_of(total, acc, 4 * j + i);
            if (tile < num_tiles) write(tile, block.first_row + j * simt::kMmaColumns, sums);
        }
    }
    SIMT_FUNCTION static float sum_of(const Totals& total, const Sums& acc, int i) {
        if constexpr (kHasChunks) {
            return total[i];
        } else {
            return acc[i];
        }
    }
    // Multiplies a stage's groups in order. Weights that no copy has brought are zeros.
    SIMT_FUNCTION static void multiply(const simt::Shared<uint32_t>& memory, int slot, int64_t groups_left, int warp,
                                       bool begins, Sums& acc) {
        const simt::Shared<uint32_t> weights = memory.slice(slot * kStageWords + warp * kTileWords, kTileWords);
        const simt::SwizzledTile rows = simt::swizzled_tile(memory, slot * kStageWords + kWeightWords);
        simt::Fragment a[kStageGroups];
        SIMT_UNROLL
        for (int g = 0; g < kStageGroups; ++g) {
            if (g < groups_left) {
                a[g].load(weights, g * kFragmentWords + simt::thread_x() * 4);
            } else {
                a[g].set({});
            }
        }
        simt::multiply_fence();
        SIMT_UNROLL
        for (int g = 0; g < kStageGroups; ++g) {
            simt::multiply_async(acc, a[g], rows, g, g == 0 && begins);
        }
        simt::commit_multiply();
        simt::wait_multiply<0>();
    }
    SIMT_FUNCTION static void end_chunk(Totals& total, const Sums& acc) {
        SIMT_UNROLL
        for (int i = 0; i < Sums::kSums; ++i) total[i] = total[i] + acc[i];
    }
};

// 128 outputs by 192 rows; sums and totals fill the consumers' registers.
struct HopperMatmul : HopperBlocks<192, 5, true> {};
// 128 outputs by 256 rows: a single chunk needs no totals.
struct HopperFastMatmul : HopperBlocks<256, 4, false> {};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
