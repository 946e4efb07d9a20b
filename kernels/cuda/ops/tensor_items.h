// kernels/cuda/ops/tensor_items.h: owns matmuls of 9 to 32 rows on tensor cores (ops/tensor_matmul.h defines the dot
// products). The work is a list of items, as in ops/matmul_items.h. A panel is 16 outputs per warp of a CTA; an item is
// one chunk of a panel, or all of its chunks one after another; CTAs take items from the list until it is empty. Shared
// memory of a CTA:
//
//   inputs  [2][rows][chunk's pairs]: double buffer for all warps: the chunk in use and the next one. The 16-byte
//           vectors of a row are swizzled by the row's low three bits, so that load_matrices has no bank conflicts
//   rings   [warps][stages][kStageGroups][128 words] of fragments: one ring buffer per warp
#pragma once

#include "kernels/cuda/ops/tensor_matmul.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

// If panels are divided into items of one chunk, each item stores its sums in memory. The CTA whose item arrives last
// at a panel adds the sums in ascending order, so no CTA waits.
struct TensorItemList {
    bool is_divided;     // an item is one chunk; else all of a panel
    int32_t num_chunks;  // per panel
    int32_t num_panels;  // outputs' panels times groups of kRows rows
    int32_t num_items;
    simt::Global<float> sums;        // [panels][chunks][warps][kSums], if divided
    simt::Global<int32_t> arrivals;  // [panels], items arrived; 0 before and after every launch
};

// CTAs of (32, block_warps) threads, kWarps at most.
template <int kRowTiles, int kRingStages>
struct TensorOfItems : TensorParameters {
    TensorItemList items;
    int32_t block_warps;  // threads_y, set by the host

    static constexpr int kWarps = 8;
    static constexpr int kThreads = kWarps * simt::kWarpSize;
    static constexpr int kResidentBlocks = 2;
    // Weights, which no kernel writes, are prefetched while earlier kernels end
    static constexpr bool kDependent = true;
    static constexpr int kRows = kRowTiles * simt::kMmaColumns;
    static constexpr int kSums = kRows * simt::kMmaRows;  // per warp and chunk: [row tiles][32 lanes][4]
    static constexpr int kStageGroups = 4;
    static constexpr int kStages = kChunkGroups / kStageGroups;  // per chunk; a short last chunk has as many
    static constexpr int kStageWords = kStageGroups * kFragmentWords;
    static constexpr int kRingWords = kRingStages * kStageWords;
    static constexpr int kChunkPairs = kChunkGroups * kGroupPairs;  // per row
    static constexpr int kRowVectors = kChunkPairs / 4;             // 16-byte vectors per row
    static constexpr int kInputWords = kRows * kChunkPairs;
    static constexpr int kWords = 2 * kInputWords + kWarps * kRingWords;
    static constexpr int kSharedBytes = kWords * 4;
    [[nodiscard]] int64_t shared_bytes() const { return (2 * kInputWords + int64_t{block_warps} * kRingWords) * 4; }
    static constexpr int kAhead = 4;  // chunks whose sums are in flight at once
    static_assert(kRowTiles % 2 == 0 && kRingStages >= 3 && kRingStages <= kStages);

    using Sums = float[kRowTiles][4];
    // One chunk of an item.
    struct Turn {
        int32_t item;
        int32_t panel;  // over all groups of kRows rows, group by group
        int32_t chunk;
    };
    // The lane's part of its warp's weights, from the lane's offset on.
    struct Source {
        simt::Global<const uint32_t> weights;
        int32_t groups;  // groups that exist
    };

    SIMT_FUNCTION void operator()() const {
        SIMT_LARGE_SHARED(uint32_t, memory, kWords);
        SIMT_SHARED(int32_t, arrived, 1);
        const simt::Shared<uint32_t> own = memory.slice(2 * kInputWords + simt::thread_y() * kRingWords, kRingWords);
        Turn turn = first_of(simt::block_x());
        Source ahead = source_of(turn);  // the stage to prefetch next
        SIMT_UNROLL
        for (int stage = 0; stage < kRingStages - 1; ++stage) fetch_weights(ahead, stage, own, stage * kStageWords);
        simt::wait_previous();
        simt::release_next();
        fetch_inputs(turn, memory.slice(0, kInputWords));
        // These copies are one group; from here on every stage commits one.
        SIMT_UNROLL
        for (int stage = 0; stage < kRingStages - 1; ++stage) simt::commit_async();
        int place = 0;
        int half = 0;
        Sums total = {};
        while (turn.item < items.num_items) {
            const Turn next = behind(turn);
            const int groups = groups_of(turn);
            const simt::Shared<uint32_t> inputs = memory.slice(half * kInputWords, kInputWords);
            Sums acc = {};
            simt::wait_async<kRingStages - 2>();
            simt::sync_block();  // all threads' inputs have landed, and the previous ones are free
            half = 1 - half;
            fetch_inputs(next, memory.slice(half * kInputWords, kInputWords));
            SIMT_ONE_BY_ONE
            for (int stage = 0; stage < kStages; ++stage) {
                const int before = place == 0 ? kRingWords - kStageWords : place - kStageWords;
                fetch_weights(ahead, (stage + kRingStages - 1) % kStages, own, before);
                simt::commit_async();
                multiply(own.slice(place, kStageWords), inputs, stage, groups, acc);
                place = place + kStageWords == kRingWords ? 0 : place + kStageWords;
                if (stage + kRingStages == kStages) ahead = source_of(next);
                if (stage + 1 == kStages) continue;
                simt::wait_async<kRingStages - 2>();
                simt::sync_warp();  // all lanes' copies have landed, and the previous stage is free
            }
            end_chunk(turn, next.item != turn.item, acc, total, arrived);
            turn = next;
        }
        simt::wait_async<0>();
    }

    // --- division of work

    [[nodiscard]] SIMT_FUNCTION Turn first_of(int32_t item) const {
        if (!items.is_divided) return {item, item, 0};
        return {item, item / items.num_chunks, item % items.num_chunks};
    }
    [[nodiscard]] SIMT_FUNCTION Turn behind(const Turn& turn) const {
        const bool goes_on = !items.is_divided && turn.chunk + 1 < items.num_chunks;
        return goes_on ? Turn{turn.item, turn.panel, turn.chunk + 1} : first_of(turn.item + simt::blocks_x());
    }
    [[nodiscard]] SIMT_FUNCTION int32_t tile_of(int32_t panel) const {
        return panel % items.num_panels * block_warps + simt::thread_y();
    }
    [[nodiscard]] SIMT_FUNCTION int64_t first_row_of(int32_t panel) const {
        return int64_t{panel / items.num_panels} * kRows;
    }

    // --- a chunk

    // For the warp's tile.
    [[nodiscard]] SIMT_FUNCTION int32_t groups_of(const Turn& turn) const {
        if (turn.item >= items.num_items || tile_of(turn.panel) >= num_tiles) return 0;
        const auto left = static_cast<int32_t>(num_groups) - turn.chunk * kChunkGroups;
        return left < kChunkGroups ? left : kChunkGroups;
    }
    [[nodiscard]] SIMT_FUNCTION Source source_of(const Turn& turn) const {
        const int32_t groups = groups_of(turn);
        const int64_t tile = groups > 0 ? tile_of(turn.panel) : 0;
        const int64_t first_group = tile * num_groups + (groups > 0 ? turn.chunk * kChunkGroups : 0);
        return {fragments.from(first_group * kFragmentWords + simt::thread_x() * 4), groups};
    }
    SIMT_FUNCTION static void fetch_weights(const Source& from, int stage, const simt::Shared<uint32_t>& own,
                                            int place) {
        SIMT_UNROLL
        for (int i = 0; i < kStageGroups; ++i) {
            const int group = stage * kStageGroups + i;
            simt::copy4_async(own, place + i * kFragmentWords + simt::thread_x() * 4, from.weights,
                              group * kFragmentWords, group < from.groups);
        }
    }
    // Called by all threads of the CTA; elements outside the matrix are +0.
    SIMT_FUNCTION void fetch_inputs(const Turn& turn, const simt::Shared<uint32_t>& to) const {
        if (turn.item >= items.num_items) return;
        const int64_t first_row = first_row_of(turn.panel);
        const int64_t first_pair = int64_t{turn.chunk} * kChunkPairs;
        SIMT_ONE_BY_ONE
        for (int i = simt::thread_y() * simt::kWarpSize + simt::thread_x(); i < kRows * kRowVectors;
             i += simt::threads_y() * simt::kWarpSize) {
            const int row = i / kRowVectors;
            const int vector = i % kRowVectors;
            const int64_t pair = first_pair + vector * 4;
            simt::copy4_async(to, place_of(row, vector), x, (first_row + row) * row_pairs() + pair,
                              first_row + row < out.num_rows && pair < row_pairs());
        }
    }
    SIMT_FUNCTION static int place_of(int row, int vector) { return row * kChunkPairs + (vector ^ row % 8) * 4; }

    // Multiplies a stage's groups in order.
    SIMT_FUNCTION static void multiply(const simt::Shared<uint32_t>& weights, const simt::Shared<uint32_t>& inputs,
                                       int stage, int groups, Sums& acc) {
        const int lane = simt::thread_x();
        // load_matrices takes two tiles of 8 rows: the lower and the upper half of one group of each.
        const int row = lane / 16 * 8 + lane % 8;
        SIMT_UNROLL
        for (int g = 0; g < kStageGroups; ++g) {
            const int group = stage * kStageGroups + g;
            if (group >= groups) continue;
            const simt::Four<uint32_t> a = simt::load4(weights, g * kFragmentWords + lane * 4);
            SIMT_UNROLL
            for (int j = 0; j < kRowTiles; j += 2) {
                const simt::Four<uint32_t> b =
                    simt::load_matrices(inputs, place_of(row + j * 8, 2 * group + lane / 8 % 2));
                simt::mma(a, b.values[0], b.values[1], acc[j]);
                simt::mma(a, b.values[2], b.values[3], acc[j + 1]);
            }
        }
    }

    // --- after a chunk

    SIMT_FUNCTION void end_chunk(const Turn& turn, bool is_over, const Sums& acc, Sums& total,
                                 const simt::Shared<int32_t>& arrived) const {
        if (items.is_divided) {
            leave(turn, acc);
            if (!is_last(turn.panel, arrived)) return;
            add_up(turn.panel, total);
        }
        SIMT_UNROLL
        for (int j = 0; j < kRowTiles && !items.is_divided; ++j) {
            SIMT_UNROLL
            for (int i = 0; i < 4; ++i) total[j][i] = total[j][i] + acc[j][i];
        }
        if (!is_over) return;
        write_all(turn.panel, total);
        SIMT_UNROLL
        for (int j = 0; j < kRowTiles; ++j) {
            SIMT_UNROLL
            for (int i = 0; i < 4; ++i) total[j][i] = 0.0F;
        }
    }
    SIMT_FUNCTION void write_all(int32_t panel, const Sums& total) const {
        const int32_t tile = tile_of(panel);
        if (tile >= num_tiles) return;
        SIMT_UNROLL
        for (int j = 0; j < kRowTiles; ++j) write(tile, first_row_of(panel) + j * simt::kMmaColumns, total[j]);
    }

    // --- a panel divided among CTAs

    // Offset of the lane's sums.
    [[nodiscard]] SIMT_FUNCTION int64_t sums_of(int32_t panel, int32_t chunk) const {
        return ((int64_t{panel} * items.num_chunks + chunk) * block_warps + simt::thread_y()) * kSums +
               simt::thread_x() * 4;
    }
    SIMT_FUNCTION void leave(const Turn& turn, const Sums& acc) const {
        const int64_t place = sums_of(turn.panel, turn.chunk);
        SIMT_UNROLL
        for (int j = 0; j < kRowTiles; ++j) {
            simt::store4(items.sums, place + j * simt::kWarpSize * 4, {{acc[j][0], acc[j][1], acc[j][2], acc[j][3]}});
        }
    }
    // Called after an item: true for the last arrival, to which all sums of the panel are visible.
    [[nodiscard]] SIMT_FUNCTION bool is_last(int32_t panel, const simt::Shared<int32_t>& arrived) const {
        const bool speaks = simt::thread_x() == 0 && simt::thread_y() == 0;
        simt::sync_block();  // the item's sums are complete: the arrival releases them
        if (speaks) arrived[0] = simt::fetch_add(items.arrivals, panel, 1) + 1;
        simt::sync_block();  // acquires the sums together with the arrivals
        if (arrived[0] < items.num_chunks) return false;
        if (speaks) items.arrivals[panel] = 0;
        return true;
    }
    SIMT_FUNCTION void add_up(int32_t panel, Sums& total) const {
        const simt::Global<const float> sums = items.sums;
        SIMT_ONE_BY_ONE
        for (int32_t first = 0; first < items.num_chunks; first += kAhead) {
            SIMT_UNROLL
            for (int j = 0; j < kRowTiles; ++j) add_chunks(sums, panel, first, j, total[j]);
        }
    }
    // Adds them in ascending order, kAhead at a time.
    SIMT_FUNCTION void add_chunks(const simt::Global<const float>& sums, int32_t panel, int32_t first, int j,
                                  float (&total)[4]) const {
        simt::Four<float> some[kAhead] = {};
        SIMT_UNROLL
        for (int c = 0; c < kAhead; ++c) {
            if (first + c >= items.num_chunks) continue;
            some[c] = simt::load4(sums, sums_of(panel, first + c) + j * simt::kWarpSize * 4);
        }
        SIMT_UNROLL
        for (int c = 0; c < kAhead; ++c) {
            if (first + c >= items.num_chunks) continue;
            SIMT_UNROLL
            for (int i = 0; i < 4; ++i) total[i] = total[i] + some[c].values[i];
        }
    }
};
struct TensorItems16 : TensorOfItems<2, 4> {};
struct TensorItems32 : TensorOfItems<4, 3> {};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
