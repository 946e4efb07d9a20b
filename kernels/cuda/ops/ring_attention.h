// kernels/cuda/ops/ring_attention.h: owns attention's runs (ops/attention.h) with bulk copies on Hopper,
// warp-specialised: a producer warp brings K and V tile by tile into a ring buffer in shared memory, ahead of the eight
// consumer warps. The sums are those of ops/attention.h. Order and layout of the ring:
//
//   fill    all tiles of K of the CTA's first item, then all of V, then those of the next item; fill n goes to place n
//           % 8
//   place   [4 pages][page_words]: a page as in memory, 16 positions of one KV head, and 16 words of padding, so that
//           neighbouring pages start in different banks
//
// A run has eight tiles, as many as the ring has places: a barrier of the consumers ensures that all of them have read
// a place's old content before any waits for its new content. So the parity of an mbarrier's phase is unambiguous.
#pragma once

#include "kernels/cuda/ops/attention.h"
#include "kernels/cuda/ops/tensor_attention.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

inline constexpr int kRingPlaces = kRunTiles;
inline constexpr int kRingPages = kTile / kUsualBlockSize;  // per tile
inline constexpr int kRingHeadDim = 128;                    // at most; even
inline constexpr int kRingPadding = 16;                     // words after a page
// For K; V has as many.
VERBATIM_HOST_DEVICE constexpr int ring_page_words(int head_dim) {
    return kUsualBlockSize * head_dim / 2 + kRingPadding;
}
VERBATIM_HOST_DEVICE constexpr int ring_tile_words(int head_dim) { return kRingPages * ring_page_words(head_dim); }

// A tile of K or V in the ring.
struct RingTile {
    simt::Shared<uint32_t> words;
    int head_dim;
    SIMT_FUNCTION int page(int position) const { return position / kUsualBlockSize * ring_page_words(head_dim); }
    // K: offset of a position's first pair; its pairs are kUsualBlockSize words apart.
    SIMT_FUNCTION int k_place(int position) const { return page(position) + position % kUsualBlockSize; }
    // V: offset of a position's dims, which are adjacent.
    SIMT_FUNCTION int place(int position) const { return page(position) + position % kUsualBlockSize * (head_dim / 2); }
    SIMT_FUNCTION uint32_t pair(int place, int dim) const { return words[place + dim / 2]; }
};

template <int kNumColumns>
struct RingExactDots : ExactDots<kNumColumns> {
    using Base = ExactDots<kNumColumns>;
    using Base::kAhead;
    using Base::kColumns;
    using Base::kPositions;
    static constexpr int kResidentBlocks = kNumColumns <= 5 ? 2 : 1;  // by registers: 96 per thread, or 168
    static_assert(kPositions * simt::kWarpSize == kTile, "a warp's positions");

    // Called by a warp, for one tile.
    SIMT_FUNCTION static void scores(const AttendParameters& of, const AttendItem& item, int tile, const RingTile& k,
                                     const AttendMemory& memory) {
        const int num_visible = item.num_visible - tile * kTile;
        const int lane = simt::thread_x();
        if (lane >= num_visible) return;
        const int second = lane + simt::kWarpSize < num_visible ? lane + simt::kWarpSize : lane;
        const int places[kPositions] = {k.k_place(lane), k.k_place(second)};
        const int num_pairs = of.pages.num_pairs();
        float acc[kPositions][kColumns] = {};
        for (int pair = 0; pair < num_pairs; pair += kAhead) {
            uint32_t words[kPositions][kAhead] = {};
            SIMT_UNROLL
            for (int i = 0; i < kAhead; ++i) {
                if (pair + i >= num_pairs) continue;
                SIMT_UNROLL
                for (int n = 0; n < kPositions; ++n) words[n][i] = k.words[places[n] + (pair + i) * kUsualBlockSize];
            }
            Base::add_pairs(memory.q, 2 * pair, words, acc);
        }
        Base::leave_scores(of, {tile * kTile + lane, tile * kTile + second}, acc, memory);
    }
    // Called by a warp: dims [first_dim, first_dim + 64) of a tile's p·v.
    SIMT_FUNCTION static void values(const AttendParameters& of, const AttendItem& item, int tile, int first_dim,
                                     const RingTile& v, const AttendMemory& memory, const simt::Shared<float>& pv) {
        const int dim = first_dim + 2 * simt::thread_x();
        if (dim >= of.pages.head_dim) return;
        float acc[kColumns][2] = {};
        const auto v_pair = [&](int position) { return v.pair(v.place(position), dim); };
        if (item.seen_of(tile, item.row_position) == kTile) {
            Base::template add_positions<true>(of, item, tile, memory, acc, v_pair);
        } else {
            Base::template add_positions<false>(of, item, tile, memory, acc, v_pair);
        }
        Base::leave_values(of, dim, acc, pv);
    }
};

struct RingTensorDots : TensorDots {
    static constexpr int kResidentBlocks = 2;
    SIMT_FUNCTION static void scores(const AttendParameters& of, const AttendItem& item, int tile, const RingTile& k,
                                     const AttendMemory& memory) {
        for (int first = 0; first < kTile && tile * kTile + first < item.num_visible; first += simt::kMmaRows) {
            const int in_tile = first + simt::thread_x() / 4;
            const int j = tile * kTile + in_tile;
            const bool there[2] = {j < item.num_visible, j + 8 < item.num_visible};
            const int places[2] = {k.k_place(in_tile), k.k_place(in_tile + 8)};
            float acc[4] = {};
            multiply_rows(of.pages.num_pairs(), there, memory, acc,
                          [&](int row, int pair) { return k.words[places[row] + pair * kUsualBlockSize]; });
            leave_scores(of, item, j, acc, memory);
        }
    }
    SIMT_FUNCTION static void values(const AttendParameters& of, const AttendItem& item, int tile, int first_dim,
                                     const RingTile& v, const AttendMemory& memory, const simt::Shared<float>& pv) {
        Sums acc = {};
        add_tile(of, item, tile, first_dim, memory, v, acc);
        leave_values(of, first_dim, acc, pv);
    }
};

// CTAs of (32, 9) threads: the consumer warps of AttendItems, and a producer warp. REQUIRES: pages of kUsualBlockSize
// positions, an even head_dim of at most kRingHeadDim.
template <typename Dots>
struct RingItems : AttendItems<Dots> {
    using Base = AttendItems<Dots>;
    using Base::kColumns;
    using Softmax = typename Base::Softmax;
    static constexpr int kRingWarps = kAttendWarps + 1;
    static constexpr int kThreads = kRingWarps * simt::kWarpSize;
    static constexpr int kResidentBlocks = Dots::kResidentBlocks;
    static constexpr int kSharedBytes = kRingPlaces * ring_tile_words(kRingHeadDim) * 4;
    static constexpr int kConsumerBarrier = 1;  // the named barrier of the consumer warps
    // The dynamic shared memory of a launch: two CTAs per SM fit with heads of 64, one with longer heads.
    [[nodiscard]] int shared_bytes() const { return kRingPlaces * ring_tile_words(this->pages.head_dim) * 4; }

    SIMT_FUNCTION void operator()() const {
        SIMT_LARGE_SHARED(uint32_t, ring, kSharedBytes / 4);
        SIMT_SHARED(float, all_q, kColumns* kMaxHeadDim);
        SIMT_SHARED(float, all_s, kColumns* kRun);
        SIMT_SHARED(float, all_keep, kColumns* kRunTiles);
        SIMT_SHARED(float, all_pv, kColumns* kAttendWarps* kPartDims);
        SIMT_BARRIERS(full, kRingPlaces);   // a tile's pages
        SIMT_BARRIERS(empty, kRingPlaces);  // V: one arrival per reading warp; K: as many lanes of the one reading warp
        if (simt::thread_y() == 0 && simt::thread_x() == 0) {
            for (int i = 0; i < kRingPlaces; ++i) {
                full[i].init(kRingPages);
                empty[i].init(num_parts_of_dims());
            }
            simt::fence_async();
        }
        simt::sync_block();
        const int32_t num_items = static_cast<DeviceQueries>(this->queries[this->num_queries]).first_item;
        int fill = 0;
        for (int32_t i = simt::block_x(); i < num_items; i += simt::blocks_x()) {
            const AttendItem item = this->item_of(i);
            if (simt::thread_y() == kAttendWarps) {
                bring(item, ring, full, empty, fill);
            } else {
                compute(item, ring, full, empty, fill, {{}, all_q, all_s, all_keep, all_pv});
            }
            fill += 2 * item.num_tiles();
        }
    }
    [[nodiscard]] SIMT_FUNCTION int num_parts_of_dims() const {
        return (this->pages.head_dim + kPartDims - 1) / kPartDims;
    }
    SIMT_FUNCTION simt::Shared<uint32_t> place_of(const simt::Shared<uint32_t>& ring, int fill) const {
        const int words = ring_tile_words(this->pages.head_dim);
        return ring.slice(fill % kRingPlaces * words, words);
    }

    // --- producer

    // One lane per page of the run. Copies whole pages; positions that no row sees are never read.
    SIMT_FUNCTION void bring(const AttendItem& item, const simt::Shared<uint32_t>& ring, const simt::Barriers& full,
                             const simt::Barriers& empty, int fill) const {
        const int lane = simt::thread_x();
        const bool is_seen = lane * kUsualBlockSize < item.num_visible;
        int64_t page = 0;
        if (is_seen) {
            const int32_t number = item.run * (kRun / kUsualBlockSize) + lane;
            page = int64_t{this->blocks[item.first_block + number]} * this->pages.n_kv_heads + item.kv_head;
        }
        const simt::Global<const uint32_t> k = this->pages.k;
        const simt::Global<const uint16_t> v = this->pages.v;
        const int words = kUsualBlockSize * this->pages.head_dim / 2;
        SIMT_ONE_BY_ONE
        for (int n = 0; n < 2 * item.num_tiles(); ++n) {
            const int place = (fill + n) % kRingPlaces;
            const int turn = (fill + n) / kRingPlaces + 1;  // use of the slot: before its first use it is free
            empty[place].wait(turn % 2);
            simt::sync_warp();  // keeps the lanes within one phase, so that the parity is unambiguous
            if (lane / kRingPages != n % item.num_tiles()) continue;
            if (!is_seen) {
                full[place].arrive();
                continue;
            }
            const simt::Shared<uint32_t> to = place_of(ring, fill + n);
            const int to_page = lane % kRingPages * ring_page_words(this->pages.head_dim);
            full[place].expect_bytes(words * 4);
            if (n < item.num_tiles()) {
                simt::bulk_copy(to, to_page, k, page * words, words, full[place]);
            } else {
                simt::bulk_copy(to, to_page, v, page * words * 2, words * 2, full[place]);
            }
        }
    }

    // --- consumers

    SIMT_FUNCTION static void meet() { simt::named_barrier(kConsumerBarrier, kAttendThreads); }
    SIMT_FUNCTION void compute(const AttendItem& item, const simt::Shared<uint32_t>& ring, const simt::Barriers& full,
                               const simt::Barriers& empty, int fill, const AttendMemory& memory) const {
        const int column = simt::thread_y();
        const AttendColumn own = this->column_of(item, column);
        const int num_tiles = item.num_tiles();
        Softmax softmax;
        if (column < kColumns) this->stage_q(own, memory.q.slice(column * kMaxHeadDim, kMaxHeadDim));
        meet();
        if (column < num_tiles) {
            full[(fill + column) % kRingPlaces].wait((fill + column) / kRingPlaces % 2);
            Dots::scores(*this, item, column, tile_at(ring, fill + column), memory);
            simt::sync_warp();
            if (simt::thread_x() < num_parts_of_dims()) empty[(fill + column) % kRingPlaces].arrive();
        }
        meet();
        if (column < kColumns) this->weigh(item, own.position, memory, softmax);
        meet();
        const int parts = num_parts_of_dims();
        const int tiles_at_once = kAttendWarps / parts;
        for (int first = 0; first < num_tiles; first += tiles_at_once) {
            const int in_pass = column / parts;
            const int tile = first + in_pass;
            if (in_pass < tiles_at_once && tile < num_tiles) {
                const int of_tile = fill + num_tiles + tile;
                const int size = kColumns * this->pages.head_dim;
                const int turn = of_tile / kRingPlaces;
                full[of_tile % kRingPlaces].wait(turn % 2);
                Dots::values(*this, item, tile, column % parts * kPartDims, tile_at(ring, of_tile), memory,
                             memory.pv.slice(in_pass * size, size));
                simt::sync_warp();
                if (simt::thread_x() == 0) empty[of_tile % kRingPlaces].arrive();
            }
            meet();
            for (int t = first; column < kColumns && t < first + tiles_at_once && t < num_tiles; ++t) {
                if (item.seen_of(t, own.position) > 0) this->add_tile(t, t - first, memory, softmax);
            }
            meet();
        }
        if (column < kColumns && own.position >= item.run * kRun) {
            this->store(softmax, this->workspace.state(this->first_runs[own.row] + item.run, own.head));
        }
    }
    SIMT_FUNCTION RingTile tile_at(const simt::Shared<uint32_t>& ring, int fill) const {
        return {place_of(ring, fill), this->pages.head_dim};
    }
};

struct AttendRing1 : RingItems<RingExactDots<1>> {};
struct AttendRing4 : RingItems<RingExactDots<4>> {};
struct AttendRing5 : RingItems<RingExactDots<5>> {};
struct AttendRing8 : RingItems<RingExactDots<8>> {};
struct TensorAttendRing : RingItems<RingTensorDots> {};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
