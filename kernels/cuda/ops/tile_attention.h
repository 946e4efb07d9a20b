// kernels/cuda/ops/tile_attention.h: owns the attention of many rows of a sequence (prefill) on Hopper's tensor cores
// (tensor.sm90): a CTA loads K and V once for a tile of 64 rows of one attention head. An item is a run for such a tile
// (ops/attention.h); a warp has 16 of its rows and keeps their scores, weights, m, l and o in registers. The rows of
// mma's result are query rows; its columns are positions of K or dims of V. Order and layout of the ring buffer:
//
//   fill    the first tile of K of the CTA's first item, the first of V, the next of K, ...; fill n goes to place n % 4
//   place   [16 pieces][piece words]: for K a quarter of a page; for V four positions of a page and 8 words of padding,
//           so that a warp's lanes, which read four pieces at once, have no bank conflicts
//
// A lane has four consecutive positions of every 16, for scores and V alike: 4 t to 4 t + 3 for t = lane % 4. Therefore
// the scores' fragments are already the fragments of the weights (mma's sum of 16 products has no order:
// numerics/tensor_sm90.h).
#pragma once

#include <limits>

#include "kernels/cuda/ops/ring_attention.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

inline constexpr int kTileRows = static_cast<int>(kAttendTileRows);
inline constexpr int kTilePlaces = 4;
inline constexpr int kTilePieces = 16;
inline constexpr int kPiecePositions = kTile / kTilePieces;  // of V
inline constexpr int kPiecesOfPage = kTilePieces / kRingPages;
inline constexpr int kPiecePadding = 8;  // words after a piece of V

// CTAs of (32, 4) threads. A warp copies four of a tile's pieces, three fills ahead. REQUIRES: pages of kUsualBlockSize
// positions.
template <int kHeadDim>
struct TensorAttendTile : AttendParameters {
    static constexpr int kGroup = simt::kMmaK;  // positions or dims per mma
    static_assert(kHeadDim % kGroup == 0 && kMaxHeadDim <= reference::kTensorChunk);
    static constexpr int kWarps = kTileRows / simt::kMmaRows;
    static constexpr int kThreads = kWarps * simt::kWarpSize;
    static constexpr int kResidentBlocks = kHeadDim <= 64 ? 3 : 2;
    static constexpr int kGroups = kTile / kGroup;        // of a tile's positions
    static constexpr int kDimGroups = kHeadDim / kGroup;  // of a head's dims
    static constexpr int kRows = 2;                       // rows per lane: row lane / 4 of the warp's and that + 8
    static constexpr int kAllRows = -1;
    static constexpr float kNothing = -std::numeric_limits<float>::infinity();
    static constexpr int kPieceWords = kPiecePositions * kHeadDim / 2;
    static constexpr int kPieceStride = kPieceWords + kPiecePadding;  // for V
    static constexpr int kPlaceWords = kTilePieces * kPieceStride;
    static constexpr int kSharedBytes = kTilePlaces * kPlaceWords * 4;
    static constexpr int kAhead = kTilePlaces - 1;
    static constexpr int kProducerLanes = kTilePieces / kWarps;
    static constexpr int kQueryStride = kHeadDim / 2 + 4;  // words: eight rows lie in different banks
    using Ring = simt::Shared<uint32_t>;

    // A warp's part of an item.
    struct Own {
        int32_t first_row;      // index in the step's rows
        int32_t num_rows;       // 0 to 16
        int32_t seen_by_first;  // positions of the run that the first and the last of them see
        int32_t seen_by_last;
        int32_t seen[kRows];  // and each of a lane's rows; 0 for a row that does not exist
        float m[kRows] = {};  // over the run's tiles so far
        float l[kRows] = {};
        float o[kDimGroups][kRows][4] = {};  // dims 4 t to 4 t + 3 of each 16
    };

    // Shared memory: the ring, and the warp's rows of q.
    struct Memory {
        Ring ring;
        Ring q;  // [16][kQueryStride]: bf16 pairs
        simt::Barriers full;
        simt::Barriers empty;
    };

    SIMT_FUNCTION void operator()() const {
        SIMT_LARGE_SHARED(uint32_t, ring, kSharedBytes / 4);
        SIMT_SHARED(uint32_t, all_q, kTileRows * kQueryStride);  // bf16 pairs
        SIMT_BARRIERS(full, kTilePlaces);                        // a tile's pieces
        SIMT_BARRIERS(empty, kTilePlaces);                       // one arrival per reading warp
        if (simt::thread_y() == 0 && simt::thread_x() == 0) {
            for (int i = 0; i < kTilePlaces; ++i) {
                full[i].init(kTilePieces);
                empty[i].init(kWarps);
            }
            simt::fence_async();
        }
        simt::sync_block();
        const int32_t num_items = static_cast<DeviceQueries>(queries[num_queries]).first_item;
        const int first = simt::thread_y() * simt::kMmaRows * kQueryStride;
        const Memory memory{ring, all_q.slice(first, simt::kMmaRows * kQueryStride), full, empty};
        int fill = 0;
        for (int32_t i = simt::block_x(); i < num_items; i += simt::blocks_x()) {
            const AttendItem item = item_of(i);
            attend(item, fill, memory);
            fill += 2 * item.num_tiles();
        }
    }
    SIMT_FUNCTION static Ring place_of(const Ring& ring, int fill) {
        return ring.slice(fill % kTilePlaces * kPlaceWords, kPlaceWords);
    }

    // --- producer

    // One lane per piece. Copies whole pieces; positions that no row sees are never read. n: number among the item's
    // fills, which start at `first_fill`.
    SIMT_FUNCTION void bring(const AttendItem& item, int first_fill, int n, const Memory& memory) const {
        const int piece = simt::thread_y() * kProducerLanes + simt::thread_x();
        if (n >= 2 * item.num_tiles() || simt::thread_x() >= kProducerLanes) return;
        const int fill = first_fill + n;
        const int place = fill % kTilePlaces;
        memory.empty[place].wait((fill / kTilePlaces + 1) % 2);  // before its first use it is free
        const int32_t position = n / 2 * kTile + piece / kPiecesOfPage * kUsualBlockSize;  // in the run
        if (position >= item.num_visible) {
            memory.full[place].arrive();
            return;
        }
        const int32_t page = item.run * (kRun / kUsualBlockSize) + position / kUsualBlockSize;
        const int64_t block = blocks[item.first_block + page];
        const int64_t from =
            ((block * pages.n_kv_heads + item.kv_head) * kPiecesOfPage + piece % kPiecesOfPage) * kPieceWords;
        memory.full[place].expect_bytes(kPieceWords * 4);
        if (n % 2 == 0) {
            const simt::Global<const uint32_t> k = pages.k;
            simt::bulk_copy(place_of(memory.ring, fill), piece * kPieceWords, k, from, kPieceWords, memory.full[place]);
        } else {
            const simt::Global<const uint16_t> v = pages.v;
            simt::bulk_copy(place_of(memory.ring, fill), piece * kPieceStride, v, from * 2, kPieceWords * 2,
                            memory.full[place]);
        }
    }

    // --- computing

    SIMT_FUNCTION static int row_of_lane() { return simt::thread_x() / 4; }  // a row of A, a column of B
    SIMT_FUNCTION static int part_of_lane() { return simt::thread_x() % 4; }
    // The i-th of a lane's four positions in group g.
    SIMT_FUNCTION static int position_of_lane(int g, int i) {
        return g * kGroup + kPiecePositions * part_of_lane() + i;
    }

    SIMT_FUNCTION void attend(const AttendItem& item, int fill, const Memory& memory) const {
        SIMT_ONE_BY_ONE
        for (int n = 0; n < kAhead; ++n) bring(item, fill, n, memory);
        Own own = own_of(item);
        stage_q(own, memory.q);
        const int num_tiles = item.num_tiles();
        SIMT_ONE_BY_ONE
        for (int tile = 0; tile < num_tiles; ++tile) {
            const bool sees = in_tile(own.seen_by_last, tile) > 0;
            float scores[kGroups][2][4] = {};
            uint32_t p[kGroups][4];
            float keep[kRows];
            take(fill + 2 * tile, memory, [&](const Ring& k) {
                if (sees) multiply_k(in_tile(item.num_visible, tile), k, memory.q, scores);
            });
            bring(item, fill, 2 * tile + kAhead, memory);
            if (sees) weigh(tile, own, scores, p, keep);
            take(fill + 2 * tile + 1, memory, [&](const Ring& v) {
                if (sees) multiply_v(tile, v, p, keep, own);
            });
            bring(item, fill, 2 * tile + 1 + kAhead, memory);
        }
        leave(item.run, own);
    }
    // Waits for a fill, reads its place, and releases the place.
    template <typename Read>
    SIMT_FUNCTION static void take(int fill, const Memory& memory, const Read& read) {
        const int turn = fill / kTilePlaces;
        memory.full[fill % kTilePlaces].wait(turn % 2);
        read(place_of(memory.ring, fill));
        simt::sync_warp();
        if (simt::thread_x() == 0) memory.empty[fill % kTilePlaces].arrive();
    }
    // How many of a run's first `count` positions lie in a tile.
    SIMT_FUNCTION static int in_tile(int32_t count, int tile) {
        const int32_t left = count - tile * kTile;
        return left < 0 ? 0 : left < kTile ? left : kTile;
    }
    SIMT_FUNCTION static Own own_of(const AttendItem& item) {
        const int32_t first = simt::thread_y() * simt::kMmaRows;
        const int32_t left = item.rows.num_rows - first;
        Own own;
        own.first_row = item.rows.first_row + first;
        own.num_rows = left < 0 ? 0 : left < simt::kMmaRows ? left : simt::kMmaRows;
        const int32_t before = item.row_position + first - item.run * kRun;
        own.seen_by_first = before + 1;
        own.seen_by_last = own.num_rows > 0 ? before + own.num_rows : 0;
        SIMT_UNROLL
        for (int h = 0; h < kRows; ++h) {
            const int32_t row = row_of_lane() + 8 * h;
            own.seen[h] = row < own.num_rows ? before + row + 1 : 0;
        }
        return own;
    }
    // Stages the warp's rows of q; +0 for rows that do not exist.
    SIMT_FUNCTION void stage_q(const Own& own, const Ring& out) const {
        simt::sync_warp();  // the previous rows have been read
        SIMT_ONE_BY_ONE
        for (int i = simt::thread_x(); i < simt::kMmaRows * kHeadDim / 2; i += simt::kWarpSize) {
            const int row = i / (kHeadDim / 2);
            const int pair = i % (kHeadDim / 2);
            uint32_t two = 0;
            if (row < own.num_rows) {
                const int64_t at = q.at(own.first_row + row, int64_t{simt::block_y()} * kHeadDim + 2 * pair);
                two = bf16_pair({q.data[at], q.data[at + 1]});
            }
            out[row * kQueryStride + pair] = two;
        }
        simt::sync_warp();
    }

    // Scores of the tile's positions [0, num_read): [16 positions][2 of four neighbours][mma's result]. Later positions
    // are not read: the last one is read in their place, and their scores are not used.
    SIMT_FUNCTION static void multiply_k(int num_read, const Ring& k, const Ring& q, float (&scores)[kGroups][2][4]) {
        const int column = row_of_lane();
        // Lanes of the upper two parts swap their two positions, so that a load has no bank conflicts.
        const bool is_turned = part_of_lane() >= 2;
        int places[kGroups][2];
        SIMT_UNROLL
        for (int i = 0; i < 2 * kGroups; ++i) {
            const int in_group = column / 2 * 4 + column % 2 + 2 * (is_turned ? 1 - i % 2 : i % 2);
            const int position = i / 2 * kGroup + in_group;
            const int read = position < num_read ? position : num_read - 1;
            places[i / 2][i % 2] = read / kUsualBlockSize * kPiecesOfPage * kPieceWords + read % kUsualBlockSize +
                                   part_of_lane() * kUsualBlockSize;
        }
        const int q_row = simt::thread_x() % 16;
        const int q_word = simt::thread_x() / 16 * 4;
        SIMT_UNROLL
        for (int d = 0; d < kDimGroups; ++d) {
            const simt::Four<uint32_t> a = simt::load_matrices(q, q_row * kQueryStride + q_word + d * kGroup / 2);
            SIMT_UNROLL
            for (int g = 0; g < kGroups; ++g) {
                uint32_t b[2][2];
                SIMT_UNROLL
                for (int more = 0; more < 2; ++more) {
                    const int pair = (d * kGroup / 2 + 4 * more) * kUsualBlockSize;
                    const uint32_t words[2] = {k[places[g][0] + pair], k[places[g][1] + pair]};
                    b[0][more] = is_turned ? words[1] : words[0];
                    b[1][more] = is_turned ? words[0] : words[1];
                }
                SIMT_UNROLL
                for (int o = 0; o < 2; ++o) simt::mma(a, b[o][0], b[o][1], scores[g][o]);
            }
        }
    }
    SIMT_FUNCTION static simt::Four<uint32_t> fragment(const uint32_t (&words)[4]) {
        return {{words[0], words[1], words[2], words[3]}};
    }

    // Turns scores into p, rounded to bf16, in mma's fragment layout, and computes m and l over the tile (N4, N5).
    // keep: the factor for each row's o. An unseen position has a score of minus infinity and a p of +0. A NaN may fail
    // to reach m, as in N5, but it reaches l and every o. The sign of a zero m does not matter.
    SIMT_FUNCTION void weigh(int tile, Own& own, float (&scores)[kGroups][2][4], uint32_t (&p)[kGroups][4],
                             float (&keep)[kRows]) const {
        const bool all_seen = in_tile(own.seen_by_first, tile) == kTile;
        SIMT_UNROLL
        for (int h = 0; h < kRows; ++h) {
            const int seen = in_tile(own.seen[h], tile);
            for_row(h, scores, [&](int, float& score) { score = score * scale; });
            if (!all_seen) {
                for_row(h, scores, [&](int j, float& score) { score = j < seen ? score : kNothing; });
            }
            float top = scores[0][0][2 * h];
            for_row(h, scores, [&](int, float& score) { top = score > top ? score : top; });
            top = over_parts(top, [](float a, float b) { return a > b ? a : b; });
            keep[h] = 0.0F;
            if (tile > 0) {
                top = reference::max_f32(own.m[h], top);
                keep[h] = reference::exp_below_one(own.m[h] - top);
            }
            for_row(h, scores, [&](int, float& score) { score = reference::exp_below_one(score - top); });
            const float sum = sum_of_row(h, scores);
            if (seen > 0) {
                own.m[h] = top;
                own.l[h] = reference::fma_f32(own.l[h], keep[h], sum);
            }
            SIMT_UNROLL
            for (int g = 0; g < kGroups; ++g) {
                SIMT_UNROLL
                for (int o = 0; o < 2; ++o) {
                    p[g][h + 2 * o] = bf16_pair({scores[g][o][2 * h], scores[g][o][2 * h + 1]});
                }
            }
        }
    }
    // call(position in the tile, its score)
    template <typename Call>
    SIMT_FUNCTION static void for_row(int h, float (&scores)[kGroups][2][4], const Call& call) {
        SIMT_UNROLL
        for (int g = 0; g < kGroups; ++g) {
            SIMT_UNROLL
            for (int o = 0; o < 2; ++o) {
                SIMT_UNROLL
                for (int i = 0; i < 2; ++i) {
                    call(position_of_lane(g, 2 * o + i), scores[g][o][2 * h + i]);
                }
            }
        }
    }
    // N4's halving: positions 32 apart, 16, 8, 4, 2, 1.
    SIMT_FUNCTION static float sum_of_row(int h, const float (&p)[kGroups][2][4]) {
        static_assert(kGroups == 4);
        float pairs[2];
        SIMT_UNROLL
        for (int i = 0; i < 2; ++i) {
            float four[2];
            SIMT_UNROLL
            for (int o = 0; o < 2; ++o) {
                const int c = 2 * h + i;
                four[o] = over_parts((p[0][o][c] + p[2][o][c]) + (p[1][o][c] + p[3][o][c]),
                                     [](float a, float b) { return a + b; });
            }
            pairs[i] = four[0] + four[1];
        }
        return pairs[0] + pairs[1];
    }
    template <typename Combine>
    SIMT_FUNCTION static float over_parts(float value, const Combine& combine) {
        value = combine(value, simt::shuffle_xor(simt::kFullWarp, value, 2));
        return combine(value, simt::shuffle_xor(simt::kFullWarp, value, 1));
    }

    // Adds a tile's p·v to o of the warp's rows. A p of +0 masks positions that a row does not see if V is finite
    // there; otherwise each row multiplies separately with the positions that it sees.
    SIMT_FUNCTION static void multiply_v(int tile, const Ring& v, const uint32_t (&p)[kGroups][4],
                                         const float (&keep)[kRows], Own& own) {
        const int by_first = in_tile(own.seen_by_first, tile);
        const int by_last = in_tile(own.seen_by_last, tile);
        if (by_first == kTile) return add_tile<true>(tile, kTile, kAllRows, v, p, keep, own);
        const bool together = is_finite(v, by_first, by_last);
        const int turns = together ? 1 : own.num_rows;
        SIMT_ONE_BY_ONE
        for (int turn = 0; turn < turns; ++turn) {
            const int seen = together ? by_last : in_tile(own.seen_by_first + turn, tile);
            add_tile<false>(tile, seen, together ? kAllRows : turn, v, p, keep, own);
        }
    }
    // 16 dims at a time, the even and the odd ones of a word separately, for this row of the warp's, or for all rows.
    // Positions [0, seen) of the tile; kWhole: all of them.
    template <bool kWhole>
    SIMT_FUNCTION static void add_tile(int tile, int seen, int row, const Ring& v, const uint32_t (&p)[kGroups][4],
                                       const float (&keep)[kRows], Own& own) {
        bool takes[kRows];
        SIMT_UNROLL
        for (int h = 0; h < kRows; ++h) {
            takes[h] = own.seen[h] > tile * kTile && (row == kAllRows || row == row_of_lane() + 8 * h);
        }
        const int first = part_of_lane() * kPieceStride + row_of_lane();
        SIMT_UNROLL
        for (int d = 0; d < kDimGroups; ++d) {
            float acc[2][4] = {};
            const int left = simt::opaque(seen - kPiecePositions * part_of_lane());
            SIMT_UNROLL
            for (int g = 0; g < kGroups; ++g) {
                uint32_t two[kPiecePositions];  // two dims of each position
                SIMT_UNROLL
                for (int i = 0; i < kPiecePositions; ++i) {
                    two[i] = 0;
                    if (!kWhole && g * kGroup + i >= left) continue;
                    two[i] = v[first + g * kPiecesOfPage * kPieceStride + i * (kHeadDim / 2) + d * (kGroup / 2)];
                }
                simt::mma(fragment(p[g]), TensorDots::lower(two[0], two[1]), TensorDots::lower(two[2], two[3]), acc[0]);
                simt::mma(fragment(p[g]), TensorDots::upper(two[0], two[1]), TensorDots::upper(two[2], two[3]), acc[1]);
            }
            // In a run's first tile o and keep are +0, so the result is pv.
            SIMT_UNROLL
            for (int i = 0; i < 4 * kRows; ++i) {
                const int h = i / 4;
                float& o = own.o[d][h][i % 4];
                const float sum = reference::fma_f32(o, keep[h], 0.0F + acc[i % 2][2 * h + i % 4 / 2]);
                o = kWhole || takes[h] ? sum : o;
            }
        }
    }
    // Checks the positions that some rows of the warp see and others do not.
    SIMT_FUNCTION static bool is_finite(const Ring& v, int begin, int end) {
        bool is = true;
        SIMT_ONE_BY_ONE
        for (int position = begin; position < end; ++position) {
            const int first = position / kPiecePositions * kPieceStride + position % kPiecePositions * (kHeadDim / 2);
            for (int i = simt::thread_x(); i < kHeadDim / 2; i += simt::kWarpSize) {
                const uint32_t two = v[first + i];
                is = is && (two & 0x7F80U) != 0x7F80U && (two & 0x7F800000U) != 0x7F800000U;
            }
        }
        return simt::ballot(simt::kFullWarp, !is) == 0;
    }

    SIMT_FUNCTION void leave(int32_t run, const Own& own) const {
        SIMT_UNROLL
        for (int h = 0; h < kRows; ++h) {
            if (own.seen[h] <= 0) continue;
            const int32_t row = own.first_row + row_of_lane() + 8 * h;
            const simt::Global<float> state = workspace.state(first_runs[row] + run, simt::block_y());
            if (part_of_lane() == 0) {
                state[0] = own.m[h];
                state[1] = own.l[h];
            }
            SIMT_UNROLL
            for (int d = 0; d < kDimGroups; ++d) {
                SIMT_UNROLL
                for (int i = 0; i < 4; ++i) state[2 + d * kGroup + 4 * part_of_lane() + i] = own.o[d][h][i];
            }
        }
    }
};

struct TensorAttendTile16 : TensorAttendTile<16> {};  // for tiny models
struct TensorAttendTile64 : TensorAttendTile<64> {};
struct TensorAttendTile128 : TensorAttendTile<128> {};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
