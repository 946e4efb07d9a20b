// kernels/cuda/ops/matmul_items.h: owns N3's dot products for a medium number of rows: more than ops/matvec.h takes,
// and too few for the large blocks of ops/matmul.h. A tile is 64 outputs by all rows of a kernel. The work is a list of
// items, each some chunks of a tile; a tile's items are consecutive. CTAs take items from the list until it is empty.
#pragma once

#include "kernels/cuda/ops/matmul.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

// An item has all chunks of its tile or some of them. In the second case every chunk's sums go to memory, and the CTA
// whose item arrives last at a tile adds them in ascending order, so no CTA waits.
struct MatmulItems {
    int32_t item_chunks;             // at most
    int32_t block_warps;             // threads_y, set by the host
    simt::Global<float> sums;        // [tiles][chunks][rows of a tile][64], if items have some chunks
    simt::Global<int32_t> arrivals;  // [tiles], items arrived; 0 before and after every launch
};

// How the sums of chunks become an output: N3 adds them in order. With factors, which come to shared memory with a
// chunk, a word of each output and kRowFactorWords of each row (ops/fp8_matmul.h):
//
//   output_factors(of, panel, chunk), row_factors(of, row, chunk)     where they begin in the weights and in x
//   row_factor(chunk)                                                 which of a row's words is the chunk's
//   add(total, sum, of the output, of the row)                        the total with a chunk's sum
struct ChunksInOrder {
    static constexpr int64_t kChunkPairs = cuda::kChunkPairs;
    static constexpr bool kHasFactors = false;
    static constexpr int kRowFactorWords = 0;
    // Whether end(of, row, output, total) makes a total the output without its bias.
    static constexpr bool kHasEnd = false;
};

// CTAs of (32, up to kWarps) threads: a warp computes one chunk of 64 outputs by kBlockRows rows. Asynchronous copies
// bring stages of 16 of K, a span (ops/weight_spans.h), through a ring buffer per warp: weights stay packed, inputs are
// unpacked to binary32 once after arrival. Weights are read once for all rows.
template <int kRowLanes, int kRowsEach, int kRingStages, typename Span = PairSpan<8>, typename Chunks = ChunksInOrder>
struct MatmulOfItems : MatmulParameters {
    MatmulItems items;

    static constexpr int64_t kChunkPairs = Chunks::kChunkPairs;
    static constexpr int kWarps = 8;
    static constexpr int kThreads = kWarps * simt::kWarpSize;
    static constexpr int kResidentBlocks = 2;
    // Weights, which no kernel writes, are prefetched while earlier kernels end
    static constexpr bool kDependent = true;
    using Lane = MatmulLane<kRowLanes, kRowsEach>;
    static constexpr int kBlockRows = Lane::kWarpRows;
    static constexpr int kSums = kBlockRows * kPanel;  // per chunk, [rows][64]
    static constexpr int kPairs = 8;                   // per stage
    static constexpr int kWeightWords = Span::kRows * kPanel;
    static constexpr int kStageWords = kWeightWords + kPairs * kBlockRows;
    static constexpr int kWeightQuads = (Span::kRows + kCopyRows - 1) / kCopyRows;  // 16-byte vectors a lane copies
    static constexpr int kInputQuads = (2 * kBlockRows + simt::kWarpSize - 1) / simt::kWarpSize;
    static constexpr int kRingWords = kRingStages * kStageWords;
    static constexpr int kFactors = kRingWords + 2 * kPairs * kBlockRows;  // after the ring: [16 of K][rows]
    static constexpr int kFactorWords = Chunks::kHasFactors ? kPanel + Chunks::kRowFactorWords * kBlockRows : 0;
    static constexpr int kWarpWords = kFactors + kFactorWords;
    static constexpr int kWords = kSums + kWarps * kWarpWords;  // totals, then each warp's part
    static constexpr int kSharedBytes = kWords * 4;
    [[nodiscard]] int64_t shared_bytes() const { return (kSums + int64_t{items.block_warps} * kWarpWords) * 4; }
    static constexpr int kAhead = 8;  // chunks whose sums are in flight at once
    static_assert(kSums <= kFactors && kSharedBytes <= 99 << 10, "where a chunk's sums lie; what every GPU has");
    static_assert(kChunkPairs % kPairs == 0 && Span::kPairs == kPairs && Lane::kLaneOutputs == 4);

    // A warp's chunk.
    struct Chunk {
        int32_t tile;
        int32_t number;
        int32_t num_pairs;  // 0: no chunk
    };
    // A CTA's iteration: as many chunks of an item as it has warps.
    struct Turn {
        int32_t item;
        int32_t first_chunk;
    };

    SIMT_FUNCTION void operator()() const {
        SIMT_LARGE_SHARED(uint32_t, memory, kWords);
        SIMT_SHARED(int32_t, arrived, 1);
        const simt::Shared<uint32_t> totals = memory.slice(0, kSums);
        const simt::Shared<uint32_t> all = memory.from(kSums);
        const simt::Shared<uint32_t> own = all.slice(simt::thread_y() * kWarpWords, kWarpWords);
        Turn turn = first_of(simt::block_x());
        Chunk chunk = chunk_of(turn);
        Source source = source_of(chunk);
        SIMT_UNROLL
        for (int stage = 0; stage < kRingStages - 1; ++stage) fetch_weights(source, stage, own, stage * kStageWords);
        simt::wait_previous();
        simt::release_next();
        fetch_factors(chunk, own);
        SIMT_UNROLL
        for (int stage = 0; stage < kRingStages - 1; ++stage) fetch_inputs(source, stage, own, stage * kStageWords);
        while (turn.item < num_items()) {
            typename Lane::Sums acc = {};
            multiply(source, chunk.num_pairs, own, acc);
            const Turn next = behind(turn);
            const bool is_over = next.item != turn.item;
            const Chunk next_chunk = chunk_of(next);
            source = source_of(next_chunk);
            if (is_divided()) {
                fetch_first(next_chunk, source, own);
                leave(chunk, acc);
                if (is_over) arrive(tile_of(turn), arrived);
            } else {
                share(acc, own);
                simt::sync_block();
                add_up(turn, is_over, all, totals);
                simt::sync_block();
                fetch_first(next_chunk, source, own);
            }
            turn = next;
            chunk = next_chunk;
        }
        simt::wait_async<0>();
    }

    // --- division of work

    [[nodiscard]] SIMT_FUNCTION int32_t num_chunks() const {
        return static_cast<int32_t>((num_pairs + kChunkPairs - 1) / kChunkPairs);
    }
    [[nodiscard]] SIMT_FUNCTION int32_t panels() const { return static_cast<int32_t>(num_panels()); }
    [[nodiscard]] SIMT_FUNCTION bool is_divided() const { return items.item_chunks < num_chunks(); }
    [[nodiscard]] SIMT_FUNCTION int32_t tile_items() const {
        return (num_chunks() + items.item_chunks - 1) / items.item_chunks;
    }
    [[nodiscard]] SIMT_FUNCTION int32_t num_items() const {
        return panels() * static_cast<int32_t>((out.num_rows + kBlockRows - 1) / kBlockRows) * tile_items();
    }
    [[nodiscard]] SIMT_FUNCTION int32_t tile_of(const Turn& turn) const { return turn.item / tile_items(); }
    [[nodiscard]] SIMT_FUNCTION Turn first_of(int32_t item) const {
        return {item, item % tile_items() * items.item_chunks};
    }
    [[nodiscard]] SIMT_FUNCTION int32_t end_of(const Turn& turn) const {
        const int32_t end = first_of(turn.item).first_chunk + items.item_chunks;
        return end < num_chunks() ? end : num_chunks();
    }
    [[nodiscard]] SIMT_FUNCTION Turn behind(const Turn& turn) const {
        const int32_t next = turn.first_chunk + simt::threads_y();
        return next < end_of(turn) ? Turn{turn.item, next} : first_of(turn.item + simt::blocks_x());
    }
    // The warp's chunk of a turn.
    [[nodiscard]] SIMT_FUNCTION Chunk chunk_of(const Turn& turn) const {
        const int32_t tile = tile_of(turn);
        const int32_t number = turn.first_chunk + simt::thread_y();
        const bool is_there = turn.item < num_items() && number < end_of(turn);
        const int64_t left = is_there ? num_pairs - int64_t{number} * kChunkPairs : 0;
        return {tile, number, static_cast<int32_t>(left < kChunkPairs ? left : kChunkPairs)};
    }
    [[nodiscard]] SIMT_FUNCTION int64_t panel_of(int32_t tile) const { return tile % panels(); }
    [[nodiscard]] SIMT_FUNCTION int64_t first_row_of(int32_t tile) const {
        return int64_t{tile / panels()} * kBlockRows;
    }

    // --- a chunk

    // The data that the lane copies, from the lane's offset on.
    struct Source {
        simt::Global<const uint32_t> weights;
        simt::Global<const uint32_t> inputs[kInputQuads];
        int32_t weight_pairs;              // pairs that exist from there on; 0 or less: none
        int32_t input_pairs[kInputQuads];  // likewise
    };
    SIMT_FUNCTION Source source_of(const Chunk& chunk) const {
        const int lane = simt::thread_x();
        const int64_t first = int64_t{chunk.number} * kChunkPairs;
        Source source;
        const int64_t first_row = panel_of(chunk.tile) * Span::panel_rows(num_pairs) + Span::first_row(first);
        source.weights = weight.from(first_row * kPanel + Span::lane_words(lane));
        source.weight_pairs = chunk.num_pairs - Span::lane_pairs(lane);
        SIMT_UNROLL
        for (int i = 0; i < kInputQuads; ++i) {
            const int quad = i * simt::kWarpSize + lane;
            const int64_t row = first_row_of(chunk.tile) + quad / 2;
            source.inputs[i] = x.from(row * row_pairs + first + quad % 2 * 4);
            source.input_pairs[i] = quad < 2 * kBlockRows && row < out.num_rows ? chunk.num_pairs - quad % 2 * 4 : 0;
        }
        return source;
    }
    // Weights [rows][64] of a stage go to the ring, from `place` on.
    SIMT_FUNCTION static void fetch_weights(const Source& from, int stage, const simt::Shared<uint32_t>& own,
                                            int place) {
        const int lane = simt::thread_x();
        SIMT_UNROLL
        for (int i = 0; i < kWeightQuads; ++i) {
            if constexpr (Span::kRows % kCopyRows != 0) {
                if (i * kCopyRows + lane / kPanelQuads >= Span::kRows) continue;
            }
            simt::copy4_async(own, place + (i * simt::kWarpSize + lane) * 4, from.weights,
                              Span::copy_words(stage, i, lane), Span::is_copied(stage, i, lane, from.weight_pairs));
        }
    }
    // Inputs [rows][pairs]; commits this and the preceding copies as one group.
    SIMT_FUNCTION static void fetch_inputs(const Source& from, int stage, const simt::Shared<uint32_t>& own,
                                           int place) {
        SIMT_UNROLL
        for (int i = 0; i < kInputQuads; ++i) {
            const int quad = i * simt::kWarpSize + simt::thread_x();
            if (quad >= 2 * kBlockRows) continue;
            simt::copy4_async(own, place + kWeightWords + quad * 4, from.inputs[i], stage * kPairs,
                              stage * kPairs < from.input_pairs[i]);
        }
        simt::commit_async();
    }
    // The chunk's factors, which are committed with its first inputs.
    SIMT_FUNCTION void fetch_factors(const Chunk& chunk, const simt::Shared<uint32_t>& own) const {
        if constexpr (Chunks::kHasFactors) {
            const bool is_there = chunk.num_pairs > 0;
            for (int quad = simt::thread_x(); quad < kPanelQuads; quad += simt::kWarpSize)
                simt::copy4_async(own, kFactors + quad * 4, weight,
                                  Chunks::output_factors(*this, panel_of(chunk.tile), chunk.number) + quad * 4,
                                  is_there);
            for (int r = simt::thread_x(); r < kBlockRows; r += simt::kWarpSize) {
                const int64_t row = first_row_of(chunk.tile) + r;
                simt::copy4_async(own, kFactors + kPanel + r * Chunks::kRowFactorWords, x,
                                  Chunks::row_factors(*this, row, chunk.number), is_there && row < out.num_rows);
            }
        }
    }
    SIMT_FUNCTION void fetch_first(const Chunk& chunk, const Source& from, const simt::Shared<uint32_t>& own) const {
        fetch_factors(chunk, own);
        SIMT_UNROLL
        for (int stage = 0; stage < kRingStages - 1; ++stage) {
            fetch_weights(from, stage, own, stage * kStageWords);
            fetch_inputs(from, stage, own, stage * kStageWords);
        }
    }

    // Multiplies a chunk whose first stages are in flight.
    SIMT_FUNCTION static void multiply(const Source& from, int num_pairs, const simt::Shared<uint32_t>& own,
                                       typename Lane::Sums& acc) {
        const simt::Shared<uint32_t> inputs = own.from(kRingWords);
        int place = 0;
        SIMT_ONE_BY_ONE
        for (int stage = 0; stage * kPairs < num_pairs; ++stage) {
            simt::wait_async<kRingStages - 2>();
            simt::sync_warp();  // all lanes' copies have landed, and the previous stage is free
            const int before = place == 0 ? kRingWords - kStageWords : place - kStageWords;
            fetch_weights(from, stage + kRingStages - 1, own, before);
            fetch_inputs(from, stage + kRingStages - 1, own, before);
            take_apart(own.slice(place + kWeightWords, kPairs * kBlockRows), inputs);
            simt::sync_warp();
            multiply_stage(own.slice(place, kWeightWords), inputs, stage, acc);
            place = place + kStageWords == kRingWords ? 0 : place + kStageWords;
        }
        // The copies requested after the last stage bring zeros and may still be in flight: they must land before the
        // ring is used for anything else.
        simt::wait_async<0>();
        simt::sync_warp();
    }
    // Slot 2j of [16][rows] is the odd half of pair j, slot 2j + 1 the even one.
    SIMT_FUNCTION static void take_apart(const simt::Shared<uint32_t>& pairs, const simt::Shared<uint32_t>& inputs) {
        SIMT_UNROLL
        for (int i = 0; i < kInputQuads; ++i) {
            const int quad = i * simt::kWarpSize + simt::thread_x();
            if (quad >= kBlockRows * 2) continue;
            const simt::Four<uint32_t> four = simt::load4(pairs, quad * 4);
            SIMT_UNROLL
            for (int j = 0; j < 4; ++j) {
                const int slot = (quad % 2 * 4 + j) * 2;
                inputs[slot * kBlockRows + quad / 2] = four.values[j] & 0xFFFF0000U;
                inputs[(slot + 1) * kBlockRows + quad / 2] = four.values[j] << 16;
            }
        }
    }
    SIMT_FUNCTION static void multiply_stage(const simt::Shared<uint32_t>& memory, const simt::Shared<uint32_t>& inputs,
                                             int stage, typename Lane::Sums& acc) {
        const int lane = simt::thread_x();
        const auto weights = Span::open_shared(memory, Lane::output(lane, 0), stage * kPairs);
        SIMT_UNROLL
        for (int pair = 0; pair < kPairs; ++pair) {
            const PairWeights w = weights.pair(pair);
            SIMT_UNROLL
            for (int half = 0; half < 2; ++half) {
                float x[Lane::kLaneRows];
                SIMT_UNROLL
                for (int r = 0; r < Lane::kLaneRows; r += 4) {
                    const auto quad = simt::load4(inputs, (2 * pair + half) * kBlockRows + Lane::row(lane, r));
                    SIMT_UNROLL
                    for (int k = 0; k < 4; ++k) x[r + k] = reference::float_from_bits(quad.values[k]);
                }
                SIMT_UNROLL
                for (int i = 0; i < Lane::kLaneOutputs; ++i) {
                    const float one = half == 0 ? w.odd[i] : w.even[i];
                    SIMT_UNROLL
                    for (int r = 0; r < Lane::kLaneRows; ++r) acc[r][i] = reference::fma_f32(x[r], one, acc[r][i]);
                }
            }
        }
    }

    // --- a tile of one CTA. Offsets are recomputed from here on: kept across items, they would occupy registers of the
    // main loop

    // Stores the warp's sums over its stages: [rows][64].
    SIMT_FUNCTION static void share(const typename Lane::Sums& acc, const simt::Shared<uint32_t>& own) {
        SIMT_UNROLL
        for (int r = 0; r < Lane::kLaneRows; ++r) {
            SIMT_UNROLL
            for (int i = 0; i < Lane::kLaneOutputs; i += 4) {
                const int lane = simt::opaque(simt::thread_x());
                simt::Four<uint32_t> four;
                SIMT_UNROLL
                for (int k = 0; k < 4; ++k) four.values[k] = reference::bits_from_float(acc[r][i + k]);
                simt::store4(own, Lane::row(lane, r) * kPanel + Lane::output(lane, i), four);
            }
        }
    }
    // Adds the turn's chunks in order to the totals.
    SIMT_FUNCTION void add_up(const Turn& turn, bool is_over, const simt::Shared<uint32_t>& all,
                              const simt::Shared<uint32_t>& totals) const {
        const int32_t tile = tile_of(turn);
        const int32_t left = end_of(turn) - turn.first_chunk;
        const int32_t count = left < simt::threads_y() ? left : simt::threads_y();
        for (int i = simt::opaque(simt::thread_y() * simt::kWarpSize + simt::thread_x()); i < kSums;
             i += simt::threads_y() * simt::kWarpSize) {
            float total = 0.0F;
            if (turn.first_chunk > 0) total = reference::float_from_bits(totals[i]);
            for (int c = 0; c < count; ++c) {
                const float sum = reference::float_from_bits(all[c * kWarpWords + i]);
                if constexpr (Chunks::kHasFactors) {
                    const simt::Shared<uint32_t> factors = all.slice(c * kWarpWords + kFactors, kFactorWords);
                    const int place = kPanel + i / kPanel * Chunks::kRowFactorWords;
                    total = Chunks::add(total, sum, factors[i % kPanel],
                                        factors[place + Chunks::row_factor(turn.first_chunk + c)]);
                } else {
                    total = total + sum;
                }
            }
            if (is_over) {
                if constexpr (Chunks::kHasEnd)
                    total = Chunks::end(*this, first_row_of(tile) + i / kPanel, panel_of(tile) * kPanel + i % kPanel,
                                        total);
                write(first_row_of(tile) + i / kPanel, panel_of(tile) * kPanel + i % kPanel, total);
            } else {
                totals[i] = reference::bits_from_float(total);
            }
        }
    }

    // --- a tile divided among CTAs

    [[nodiscard]] SIMT_FUNCTION int64_t sums_of(int32_t tile, int32_t number) const {
        return (int64_t{tile} * num_chunks() + number) * kSums;
    }
    SIMT_FUNCTION void leave(const Chunk& chunk, const typename Lane::Sums& acc) const {
        if (chunk.num_pairs == 0) return;
        const int64_t place = sums_of(chunk.tile, chunk.number);
        const int lane = simt::opaque(simt::thread_x());
        SIMT_UNROLL
        for (int r = 0; r < Lane::kLaneRows; ++r) {
            SIMT_UNROLL
            for (int i = 0; i < Lane::kLaneOutputs; i += 4) {
                simt::store4(items.sums, place + Lane::row(lane, r) * kPanel + Lane::output(lane, i),
                             {{acc[r][i], acc[r][i + 1], acc[r][i + 2], acc[r][i + 3]}});
            }
        }
    }
    // Called after an item: the last arrival of a tile sees all sums of the tile.
    SIMT_FUNCTION void arrive(int32_t tile, const simt::Shared<int32_t>& arrived) const {
        const bool speaks = simt::thread_x() == 0 && simt::thread_y() == 0;
        simt::sync_block();  // the item's sums are complete: the arrival releases them
        if (speaks) arrived[0] = simt::fetch_add(items.arrivals, tile, 1) + 1;
        simt::sync_block();  // acquires the sums together with the arrivals
        if (arrived[0] < tile_items()) return;
        for (int quad = simt::opaque(simt::thread_y() * simt::kWarpSize + simt::thread_x()); quad < kSums / 4;
             quad += simt::threads_y() * simt::kWarpSize) {
            finish(tile, quad);
        }
        if (speaks) items.arrivals[tile] = 0;
    }
    // Finishes four outputs of a row.
    SIMT_FUNCTION void finish(int32_t tile, int quad) const {
        const int64_t row = first_row_of(tile) + quad / kPanelQuads;
        const simt::Global<const float> sums = items.sums;
        if (row >= out.num_rows) return;
        float total[4] = {};
        for (int32_t first = 0; first < num_chunks(); first += kAhead) {
            simt::Four<float> some[kAhead] = {};
            SIMT_UNROLL
            for (int c = 0; c < kAhead; ++c) {
                if (first + c >= num_chunks()) continue;
                some[c] = simt::load4(sums, sums_of(tile, first + c) + quad * 4);
            }
            SIMT_UNROLL
            for (int c = 0; c < kAhead; ++c) {
                if (first + c >= num_chunks()) continue;
                if constexpr (Chunks::kHasFactors) {
                    const simt::Four<uint32_t> of_outputs = simt::load4(
                        weight, Chunks::output_factors(*this, panel_of(tile), first + c) + quad % kPanelQuads * 4);
                    const uint32_t of_row =
                        x[Chunks::row_factors(*this, row, first + c) + Chunks::row_factor(first + c)];
                    SIMT_UNROLL
                    for (int k = 0; k < 4; ++k)
                        total[k] = Chunks::add(total[k], some[c].values[k], of_outputs.values[k], of_row);
                } else {
                    SIMT_UNROLL
                    for (int k = 0; k < 4; ++k) total[k] = total[k] + some[c].values[k];
                }
            }
        }
        SIMT_UNROLL
        for (int k = 0; k < 4; ++k) {
            const int64_t output = panel_of(tile) * kPanel + quad % kPanelQuads * 4 + k;
            if constexpr (Chunks::kHasEnd) total[k] = Chunks::end(*this, row, output, total[k]);
            write(row, output, total[k]);
        }
    }
};
struct Matmul8 : MatmulOfItems<2, 4, 4> {};
struct Matmul16 : MatmulOfItems<2, 8, 4> {};
struct Matmul32 : MatmulOfItems<2, 16, 3> {};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
