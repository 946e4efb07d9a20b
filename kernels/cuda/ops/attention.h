// kernels/cuda/ops/attention.h: owns N5's attention as split-K over the context. The work is a list of items, a run of
// 8 KV tiles for a few consecutive query rows each: a fixed number of CTAs takes item after item for the attention
// heads of a KV head, for any sequence lengths, and a second kernel merges a row's runs left to right.
#pragma once

#include "kernels/cuda/ops/matmul.h"
#include "kernels/cuda/ops/pages.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

inline constexpr int kTile = static_cast<int>(reference::kKvTile);
inline constexpr int kRun = static_cast<int>(reference::kRunPositions);
inline constexpr int kRunTiles = kRun / kTile;
inline constexpr int kMaxHeadDim = 256;
inline constexpr int kAttendWarps = static_cast<int>(kAttendColumns);
inline constexpr int kAttendThreads = kAttendWarps * simt::kWarpSize;
inline constexpr int kUsualBlockSize = 16;
inline constexpr int kPartDims = 2 * simt::kWarpSize;  // dims of o that a warp computes for a tile

// Softmax states [run of a row][attention head]: m, l, o[head_dim].
struct Workspace {
    simt::Global<float> data;
    int64_t n_heads;
    int64_t head_dim;
    SIMT_FUNCTION simt::Global<float> state(int64_t run, int64_t head) const {
        return data.slice((run * n_heads + head) * (head_dim + 2), head_dim + 2);
    }
};

// A run for a few rows.
struct AttendItem {
    DeviceQueries rows;
    int32_t run;
    int32_t kv_head;
    int32_t first_block;   // index of the sequence's first block
    int32_t row_position;  // position of the first row
    int32_t num_visible;   // positions of the run that the last row sees
    [[nodiscard]] SIMT_FUNCTION int num_tiles() const { return (num_visible + kTile - 1) / kTile; }
    // The number of positions in a tile of the run that a row at this position sees.
    [[nodiscard]] SIMT_FUNCTION int seen_of(int tile, int32_t position) const {
        const int32_t count = position + 1 - run * kRun - tile * kTile;
        return count < 0 ? 0 : count < kTile ? count : kTile;
    }
    [[nodiscard]] SIMT_FUNCTION int seen_by_last(int tile) const {
        return seen_of(tile, row_position + rows.num_rows - 1);
    }
};

struct AttendParameters {
    KernelBatch batch;
    simt::Global<const int32_t> blocks;
    simt::Global<const DeviceQueries> queries;  // [num_queries + 1]
    simt::Global<const int32_t> first_runs;     // [num_rows + 1]
    int32_t num_queries;
    float scale;
    int32_t group;      // attention heads per KV head
    int32_t heads;      // of these, per CTA: columns are [rows][heads]
    int32_t num_parts;  // CTAs that share a KV head's attention heads
    KernelRows<const float> q;
    KernelPages pages;
    Workspace workspace;

    // The i-th item of the step, for this CTA's KV head.
    SIMT_FUNCTION AttendItem item_of(int32_t i) const {
        int32_t found = 0;  // the query whose item it is: the last one whose first item is not greater
        int32_t end = num_queries;
        while (end - found > 1) {
            const int32_t middle = (found + end) / 2;
            (static_cast<DeviceQueries>(queries[middle]).first_item <= i ? found : end) = middle;
        }
        const DeviceQueries rows = queries[found];
        const DeviceSequence sequence = batch.sequences[rows.sequence];
        const int32_t run = i - rows.first_item;
        const int32_t row_position = sequence.first_position + rows.first_row - sequence.first_row;
        const int32_t num_visible = row_position + rows.num_rows - run * kRun;
        return {rows,
                run,
                simt::block_y() / num_parts,
                sequence.first_block,
                row_position,
                num_visible < kRun ? num_visible : kRun};
    }
};

// One query row and one attention head.
struct AttendColumn {
    bool is_there;
    int32_t row;
    int32_t head;
    int32_t position;  // -1, which sees nothing, for an unused column
};

// A CTA's shared memory. Unused columns have q and p of +0.
struct AttendMemory {
    simt::Shared<int32_t> places;  // [2][512], for the run's positions: the slot's number in the pool, and in its page
    simt::Shared<float> q;         // [columns][256]: bf16 values, padded with +0 to a multiple of 16
    simt::Shared<float> s;         // [columns][512]: scores, then p, rounded to bf16
    simt::Shared<float> keep;      // [columns][8]: factor that rescales o when a tile is added
    simt::Shared<float> pv;        // [tiles of a pass][columns][head_dim]
};

// Takes items block_x, block_x + gridDim.x, ... CTAs of (32, 8) threads. All warps compute a run's scores, then warp c
// applies the softmax for column c. p·v is computed tile by tile, as many tiles per pass as the warps cover, and warp c
// adds them in order to the o of column c. Dots supplies the products, scores<kBlockSize>() and values(), for up to
// kColumns columns. kBlockSize is 0 except for the usual block size, which makes K's offsets constants.
template <typename Dots>
struct AttendItems : AttendParameters {
    static constexpr int kColumns = Dots::kColumns;
    static constexpr int kThreads = kAttendThreads;
    static constexpr int kResidentBlocks = kColumns <= 5 ? 3 : 2;
    static constexpr int kLaneDims = kMaxHeadDim / simt::kWarpSize;
    static_assert(kColumns <= kAttendWarps);

    // Warp c's column over the run's tiles so far: m and l in every lane; each lane holds its dims of o.
    struct Softmax {
        float m = 0.0F;
        float l = 0.0F;
        float o[kLaneDims] = {};
    };

    SIMT_FUNCTION void operator()() const {
        SIMT_SHARED(int32_t, places, 2 * kRun);
        SIMT_SHARED(float, all_q, kColumns* kMaxHeadDim);
        SIMT_SHARED(float, all_s, kColumns* kRun);
        SIMT_SHARED(float, all_keep, kColumns* kRunTiles);
        SIMT_SHARED(float, all_pv, kColumns* kAttendWarps* kPartDims);
        const AttendMemory memory{places, all_q, all_s, all_keep, all_pv};
        const int32_t num_items = static_cast<DeviceQueries>(queries[num_queries]).first_item;
        for (int32_t i = simt::block_x(); i < num_items; i += simt::blocks_x()) attend(item_of(i), memory);
    }

    SIMT_FUNCTION AttendColumn column_of(const AttendItem& item, int column) const {
        const int32_t in_group = simt::block_y() % num_parts * heads + column % heads;
        const int32_t in_rows = column / heads;
        const bool is_there = in_group < group && in_rows < item.rows.num_rows;
        return {is_there, item.rows.first_row + in_rows, item.kv_head * group + in_group,
                is_there ? item.row_position + in_rows : -1};
    }

    SIMT_FUNCTION void attend(const AttendItem& item, const AttendMemory& memory) const {
        const int column = simt::thread_y();
        const AttendColumn own = column_of(item, column);
        Softmax softmax;
        find_places(item, memory);
        if (column < kColumns) stage_q(own, memory.q.slice(column * kMaxHeadDim, kMaxHeadDim));
        simt::sync_block();
        if (pages.block_size == kUsualBlockSize) {
            Dots::template scores<kUsualBlockSize>(*this, item, memory);
        } else {
            Dots::template scores<0>(*this, item, memory);
        }
        simt::sync_block();
        if (column < kColumns) weigh(item, own.position, memory, softmax);
        simt::sync_block();
        const int parts = (pages.head_dim + kPartDims - 1) / kPartDims;  // parts of o's dims
        const int tiles_at_once = kAttendWarps / parts;
        for (int first = 0; first < item.num_tiles(); first += tiles_at_once) {
            const int in_pass = column / parts;
            if (in_pass < tiles_at_once && first + in_pass < item.num_tiles()) {
                const int size = kColumns * pages.head_dim;
                Dots::values(*this, item, first + in_pass, column % parts * kPartDims, memory,
                             memory.pv.slice(in_pass * size, size));
            }
            simt::sync_block();
            for (int t = first; column < kColumns && t < first + tiles_at_once && t < item.num_tiles(); ++t) {
                if (item.seen_of(t, own.position) > 0) add_tile(t, t - first, memory, softmax);
            }
            simt::sync_block();
        }
        if (column < kColumns && own.position >= item.run * kRun) {
            store(softmax, workspace.state(first_runs[own.row] + item.run, own.head));
        }
    }

    // For the visible positions of the run.
    SIMT_FUNCTION void find_places(const AttendItem& item, const AttendMemory& memory) const {
        for (int j = simt::thread_y() * simt::kWarpSize + simt::thread_x(); j < item.num_visible; j += kAttendThreads) {
            const int32_t position = item.run * kRun + j;
            const int32_t slot = position % pages.block_size;
            const int32_t block = blocks[item.first_block + position / pages.block_size];
            memory.places[j] = pages.slot_number(block, item.kv_head, slot);
            memory.places[kRun + j] = slot;
        }
    }
    SIMT_FUNCTION void stage_q(const AttendColumn& column, const simt::Shared<float>& out) const {
        const int end =
            (pages.head_dim + simt::kMmaK - 1) / simt::kMmaK * simt::kMmaK;  // K is multiplied in whole groups of 16
        for (int dim = simt::thread_x(); dim < end; dim += simt::kWarpSize) {
            float value = 0.0F;
            if (column.is_there && dim < pages.head_dim) {
                value = reference::bf16_value(q.data[q.at(column.row, int64_t{column.head} * pages.head_dim + dim)]);
            }
            out[dim] = value;
        }
    }

    // Warp c for column c: turns scores into p, rounded to bf16, and computes m and l over the run. A lane has
    // positions 32 apart in every tile, so N4's halving is a butterfly sum over lanes at distances 16, 8, 4, 2, 1; sums
    // and maxima are equal in all lanes.
    SIMT_FUNCTION void weigh(const AttendItem& item, int32_t position, const AttendMemory& memory,
                             Softmax& softmax) const {
        const simt::Shared<float> scores = memory.s.slice(simt::thread_y() * kRun, kRun);
        SIMT_ONE_BY_ONE
        for (int t = 0; t < item.num_tiles(); ++t) {
            const int seen = item.seen_of(t, position);
            float keep = 0.0F;
            if (seen > 0) {
                const float before = softmax.m;
                const float top = highest(scores, t, seen);
                softmax.m = t == 0 ? top : reference::max_f32(before, top);
                if (t > 0) keep = reference::exp_f32(before - softmax.m);
            }
            const float sum = leave_p(scores, t, seen, softmax.m);
            if (seen == 0) continue;
            softmax.l = t == 0 ? sum : reference::fma_f32(softmax.l, keep, sum);
            if (simt::thread_x() == 0) memory.keep[simt::thread_y() * kRunTiles + t] = keep;
        }
    }
    SIMT_FUNCTION static float highest(const simt::Shared<float>& scores, int tile, int seen) {
        float top = reference::float_from_bits(0xFF800000U);  // minus infinity
        SIMT_UNROLL
        for (int h = 0; h < 2; ++h) {
            const int j = h * simt::kWarpSize + simt::thread_x();
            if (j < seen) top = reference::max_f32(top, scores[tile * kTile + j]);
        }
        return over_lanes(top, [](float a, float b) { return reference::max_f32(a, b); });
    }
    // Returns the sum of the unrounded p; unseen positions have +0.
    SIMT_FUNCTION static float leave_p(const simt::Shared<float>& scores, int tile, int seen, float m) {
        float sum = 0.0F;
        SIMT_UNROLL
        for (int h = 0; h < 2; ++h) {
            const int j = h * simt::kWarpSize + simt::thread_x();
            float p = 0.0F;
            if (j < seen) p = reference::exp_f32(scores[tile * kTile + j] - m);
            scores[tile * kTile + j] = reference::bf16_value(p);
            sum = sum + p;
        }
        return over_lanes(sum, [](float a, float b) { return a + b; });
    }
    template <typename Combine>
    SIMT_FUNCTION static float over_lanes(float value, const Combine& combine) {
        SIMT_UNROLL
        for (int lanes = simt::kWarpSize / 2; lanes >= 1; lanes /= 2) {
            value = combine(value, simt::shuffle_xor(simt::kFullWarp, value, lanes));
        }
        return value;
    }

    // Warp c for column c: the first tile of a run assigns.
    SIMT_FUNCTION void add_tile(int tile, int in_pass, const AttendMemory& memory, Softmax& softmax) const {
        const int column = simt::thread_y();
        const auto pv = memory.pv.slice((in_pass * kColumns + column) * pages.head_dim, pages.head_dim);
        float keep = 0.0F;
        if (tile > 0) keep = memory.keep[column * kRunTiles + tile];
        SIMT_UNROLL
        for (int k = 0; k < kLaneDims; ++k) {
            const int dim = k * simt::kWarpSize + simt::thread_x();
            if (dim >= pages.head_dim) continue;
            softmax.o[k] = tile == 0 ? static_cast<float>(pv[dim]) : reference::fma_f32(softmax.o[k], keep, pv[dim]);
        }
    }
    SIMT_FUNCTION void store(const Softmax& softmax, const simt::Global<float>& state) const {
        if (simt::thread_x() == 0) {
            state[0] = softmax.m;
            state[1] = softmax.l;
        }
        SIMT_UNROLL
        for (int k = 0; k < kLaneDims; ++k) {
            const int dim = k * simt::kWarpSize + simt::thread_x();
            if (dim < pages.head_dim) state[2 + dim] = softmax.o[k];
        }
    }
};

// N3's products on CUDA cores: a thread computes the scores of two positions for all columns, and two dims of a tile's
// p·v for all columns, so that K and V are loaded and unpacked once.
template <int kNumColumns>
struct ExactDots {
    static constexpr int kColumns = kNumColumns;
    static constexpr int kAhead = 8;      // words of K or V in flight at once, per position or dim
    static constexpr int kPositions = 2;  // per thread
    static_assert(kPositions * kAttendThreads == kRun && kMaxHeadDim <= reference::kDotChunk);

    template <int kBlockSize>
    SIMT_FUNCTION static void scores(const AttendParameters& of, const AttendItem& item, const AttendMemory& memory) {
        const int thread = simt::thread_y() * simt::kWarpSize + simt::thread_x();
        if (thread >= item.num_visible) return;
        const int second = thread + kAttendThreads < item.num_visible ? thread + kAttendThreads : thread;
        const int j[kPositions] = {thread, second};
        const simt::Global<uint32_t> k[kPositions] = {k_of(of, memory, j[0]), k_of(of, memory, j[1])};
        const int32_t stride = kBlockSize > 0 ? kBlockSize : of.pages.block_size;
        float acc[kPositions][kColumns] = {};
        for (int pair = 0; pair < of.pages.num_pairs(); pair += kAhead) {
            uint32_t words[kPositions][kAhead] = {};
            SIMT_UNROLL
            for (int i = 0; i < kAhead; ++i) {
                if (pair + i >= of.pages.num_pairs()) continue;
                SIMT_UNROLL
                for (int n = 0; n < kPositions; ++n) words[n][i] = k[n][pair * stride + i * stride];
            }
            add_pairs(memory.q, 2 * pair, words, acc);
        }
        leave_scores(of, j, acc, memory);
    }
    // For positions j[n] of the run; the last may repeat the first.
    SIMT_FUNCTION static void leave_scores(const AttendParameters& of, const int (&j)[kPositions],
                                           const float (&acc)[kPositions][kColumns], const AttendMemory& memory) {
        SIMT_UNROLL
        for (int n = 0; n < kPositions; ++n) {
            if (n > 0 && j[n] == j[0]) continue;
            SIMT_UNROLL
            for (int c = 0; c < kColumns; ++c) memory.s[c * kRun + j[n]] = (0.0F + acc[n][c]) * of.scale;
        }
    }
    // Adds pairs of K from `dim` on, for all columns.
    SIMT_FUNCTION static void add_pairs(const simt::Shared<float>& q, int dim,
                                        const uint32_t (&words)[kPositions][kAhead],
                                        float (&acc)[kPositions][kColumns]) {
        SIMT_UNROLL
        for (int c = 0; c < kColumns; ++c) {
            SIMT_UNROLL
            for (int i = 0; i < kAhead; i += 2) {
                const auto two = simt::load4(q, c * kMaxHeadDim + dim + 2 * i);
                SIMT_UNROLL
                for (int n = 0; n < kPositions; ++n) {
                    acc[n][c] = add_two(two.values[0], two.values[1], words[n][i], acc[n][c]);
                    acc[n][c] = add_two(two.values[2], two.values[3], words[n][i + 1], acc[n][c]);
                }
            }
        }
    }
    // A pair of N3: the odd product first.
    SIMT_FUNCTION static float add_two(float even, float odd, uint32_t pair, float acc) {
        return reference::fma_f32(even, even_half(pair), reference::fma_f32(odd, odd_half(pair), acc));
    }
    SIMT_FUNCTION static simt::Global<uint32_t> k_of(const AttendParameters& of, const AttendMemory& memory, int j) {
        return of.pages.k_of(memory.places[j], memory.places[kRun + j]);
    }

    // Dims [first_dim, first_dim + 64) of a tile's p·v.
    SIMT_FUNCTION static void values(const AttendParameters& of, const AttendItem& item, int tile, int first_dim,
                                     const AttendMemory& memory, const simt::Shared<float>& pv) {
        const int dim = first_dim + 2 * simt::thread_x();
        if (dim >= of.pages.head_dim) return;
        float acc[kColumns][2] = {};
        const auto v_of = [&](int position) { return of.pages.v_of(memory.places[tile * kTile + position]); };
        if (item.seen_of(tile, item.row_position) == kTile && of.pages.has_v_pairs()) {
            add_positions<true>(of, item, tile, memory, acc,
                                [&](int position) { return of.pages.template v_pair<true>(v_of(position), dim); });
        } else {
            add_positions<false>(of, item, tile, memory, acc,
                                 [&](int position) { return of.pages.template v_pair<false>(v_of(position), dim); });
        }
        leave_values(of, dim, acc, pv);
    }
    SIMT_FUNCTION static void leave_values(const AttendParameters& of, int dim, const float (&acc)[kColumns][2],
                                           const simt::Shared<float>& pv) {
        SIMT_UNROLL
        for (int c = 0; c < kColumns; ++c) {
            pv[c * of.pages.head_dim + dim] = 0.0F + acc[c][0];
            if (dim + 1 < of.pages.head_dim) pv[c * of.pages.head_dim + dim + 1] = 0.0F + acc[c][1];
        }
    }
    // Adds pairs of positions in order, the odd one first. kAllSeen: every column sees the positions. Otherwise a
    // position adds nothing to a column that does not see it, whatever its V, and positions that no column sees are not
    // read. v_pair(position): two dims of V in the tile.
    template <bool kAllSeen, typename Pair>
    SIMT_FUNCTION static void add_positions(const AttendParameters& of, const AttendItem& item, int tile,
                                            const AttendMemory& memory, float (&acc)[kColumns][2], const Pair& v_pair) {
        const int num_read = kAllSeen ? kTile : item.seen_by_last(tile);
        for (int first = 0; first < num_read; first += kAhead) {
            const int place = tile * kTile + first;
            uint32_t words[kAhead] = {};
            SIMT_UNROLL
            for (int i = 0; i < kAhead; ++i) {
                if (!kAllSeen && first + i >= num_read) continue;
                words[i] = v_pair(first + i);
            }
            SIMT_UNROLL
            for (int c = 0; c < kColumns; ++c) {
                int seen = kAhead;
                if (!kAllSeen) seen = item.seen_of(tile, item.row_position + c / of.heads) - first;
                add_four(memory.s, c * kRun + place, words, 0, seen, acc[c]);
                add_four(memory.s, c * kRun + place + 4, words, 4, seen, acc[c]);
            }
        }
    }
    SIMT_FUNCTION static void add_four(const simt::Shared<float>& p, int place, const uint32_t (&words)[kAhead],
                                       int first, int seen, float (&acc)[2]) {
        const auto four = simt::load4(p, place);
        SIMT_UNROLL
        for (int i = 0; i < 4; ++i) {
            const int odd_first = i ^ 1;
            const uint32_t word = first + odd_first < seen ? words[first + odd_first] : 0U;
            acc[0] = reference::fma_f32(four.values[odd_first], even_half(word), acc[0]);
            acc[1] = reference::fma_f32(four.values[odd_first], odd_half(word), acc[1]);
        }
    }
};

struct AttendRun1 : AttendItems<ExactDots<1>> {};
struct AttendRun4 : AttendItems<ExactDots<4>> {};
struct AttendRun5 : AttendItems<ExactDots<5>> {};
struct AttendRun8 : AttendItems<ExactDots<8>> {};

// Merges runs left to right; out = o / l, +0 for a row without runs. One CTA per row and attention head, one thread per
// pair of dims; the last head's CTA also writes the row's padding. Writes pairs when head_dim is even.
struct MergeRuns {
    simt::Global<const int32_t> first_runs;
    Workspace workspace;
    KernelRows<float> out;
    KernelPairs pairs;
    SIMT_FUNCTION void operator()() const {
        simt::release_next();  // the dependent kernel: o's matvec
        const int64_t row = simt::block_x();
        const int64_t head = simt::block_y();
        const int32_t begin = first_runs[row];
        const int32_t end = first_runs[row + 1];
        const int64_t first = head * workspace.head_dim;
        const bool pads = head == workspace.n_heads - 1 && 2 * pairs.row_pairs > out.width;
        const int64_t num_dims = pads ? 2 * pairs.row_pairs - first : workspace.head_dim;
        for (int64_t dim = 2 * simt::thread_x(); dim < num_dims; dim += 2 * simt::threads_x()) {
            float two[2] = {};
            if (begin < end && dim < workspace.head_dim) merge(begin, end, head, dim, two);
            SIMT_UNROLL
            for (int h = 0; h < 2; ++h) {
                if (dim + h < workspace.head_dim) out.data[out.at(row, first + dim + h)] = two[h];
            }
            pairs.leave(row, (first + dim) / 2, two);
        }
    }

    // Merges two dims, or the last one.
    SIMT_FUNCTION void merge(int32_t begin, int32_t end, int64_t head, int64_t dim, float (&o)[2]) const {
        const int num = dim + 1 < workspace.head_dim ? 2 : 1;
        float m = workspace.state(begin, head)[0];
        float l = workspace.state(begin, head)[1];
        SIMT_UNROLL
        for (int h = 0; h < 2; ++h) {
            if (h < num) o[h] = workspace.state(begin, head)[2 + dim + h];
        }
        for (int32_t run = begin + 1; run < end; ++run) {
            const simt::Global<float> next = workspace.state(run, head);
            const float next_m = next[0];
            const float top = reference::max_f32(m, next_m);
            const float keep = reference::exp_f32(m - top);
            const float add = reference::exp_f32(next_m - top);
            l = reference::fma_f32(l, keep, next[1] * add);
            SIMT_UNROLL
            for (int h = 0; h < 2; ++h) {
                if (h < num) o[h] = reference::fma_f32(o[h], keep, next[2 + dim + h] * add);
            }
            m = top;
        }
        SIMT_UNROLL
        for (int h = 0; h < 2; ++h) {
            if (h < num) o[h] = o[h] / l;
        }
    }
};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
