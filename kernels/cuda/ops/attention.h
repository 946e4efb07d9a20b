// kernels/cuda/ops/attention.h: rotary, pages, and N5's attention. Its work is a list of items, a run of 8 tiles for a few neighbouring
// query rows each: a fixed number of blocks takes item after item for the heads of a KV head, however long the sequences are,
// and a second kernel merges a row's runs left to right.
#pragma once

#include "kernels/cuda/ops/mamba.h"
#include "kernels/cuda/ops/matmul.h"
#include "kernels/cuda/ops/norms.h"
#include "kernels/cuda/ops/tensor_matmul.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

inline constexpr int kTile = static_cast<int>(reference::kKvTile);
inline constexpr int kColumns = static_cast<int>(kAttendColumns);  // threads_y at most
inline constexpr int kMaxHeadDim = 256;
inline constexpr int kDimsPerThread = kMaxHeadDim / kTile;

// reference/ops/rope.h, in place. Elements of a row: pairs of every head.
struct Rope {
    simt::Global<const int32_t> positions;
    int64_t n_heads;
    int64_t head_dim;
    simt::Global<const float> cos, sin;  // [num_positions, n_pairs]
    int64_t n_pairs;
    KernelRows<float> x;
    SIMT_FUNCTION void operator()() const {
        const int64_t row = simt::block_x();
        const int64_t i = element_of_row();
        if (i >= n_heads * n_pairs) return;
        const int64_t at = x.at(row, i / n_pairs * head_dim + i % n_pairs);
        const int64_t angle = int64_t{positions[row]} * n_pairs + i % n_pairs;
        const float a = x.data[at];
        const float b = x.data[at + n_pairs];
        const float c = cos[angle];
        const float s = sin[angle];
        x.data[at] = reference::fma_f32(a, c, -(b * s));
        x.data[at + n_pairs] = reference::fma_f32(b, c, a * s);
    }
};

// A layer's pages (DevicePages), a page at a time.
struct KernelPages {
    simt::Global<uint32_t> k;
    simt::Global<uint16_t> v;
    int32_t block_size;
    int32_t n_kv_heads;
    int32_t head_dim;
    SIMT_FUNCTION int32_t num_pairs() const { return (head_dim + 1) / 2; }
    SIMT_FUNCTION simt::Global<uint32_t> k_page(int64_t block, int64_t kv_head) const {
        const int64_t size = num_pairs() * block_size;
        return k.slice((block * n_kv_heads + kv_head) * size, size);
    }
    SIMT_FUNCTION simt::Global<uint16_t> v_page(int64_t block, int64_t kv_head) const {
        const int64_t size = block_size * head_dim;
        return v.slice((block * n_kv_heads + kv_head) * size, size);
    }
};

// K and V of the batch's rows, rounded to bf16, into their pages. A thread writes a pair of K and both of V.
struct StoreKv {
    KernelBatch batch;
    simt::Global<const int32_t> positions;
    simt::Global<const int32_t> row_sequences;
    simt::Global<const int32_t> blocks;
    KernelRows<const float> k, v;
    KernelPages pages;
    SIMT_FUNCTION void operator()() const {
        const int64_t row = simt::block_x();
        const int64_t i = element_of_row();
        const int32_t num_pairs = pages.num_pairs();
        if (i >= pages.n_kv_heads * num_pairs) return;
        const int64_t kv_head = i / num_pairs;
        const int64_t dim = i % num_pairs * 2;
        const int64_t position = positions[row];
        const DeviceSequence sequence = batch.sequences[row_sequences[row]];
        if (sequence.first_block < 0) return;
        const int64_t block = blocks[sequence.first_block + position / pages.block_size];
        const int64_t slot = position % pages.block_size;
        const int64_t column = kv_head * pages.head_dim + dim;
        const simt::Global<uint16_t> v_page = pages.v_page(block, kv_head);
        const uint32_t even = reference::round_to_bf16(k.data[k.at(row, column)]);
        v_page[slot * pages.head_dim + dim] = reference::round_to_bf16(v.data[v.at(row, column)]);
        uint32_t odd = 0;
        if (dim + 1 < pages.head_dim) {
            odd = reference::round_to_bf16(k.data[k.at(row, column + 1)]);
            v_page[slot * pages.head_dim + dim + 1] = reference::round_to_bf16(v.data[v.at(row, column + 1)]);
        }
        pages.k_page(block, kv_head)[dim / 2 * pages.block_size + slot] = even | odd << 16;
    }
};

// Tail copies of a step, slots [0, num_slots) each. One block per copy and KV head.
struct CopyTails {
    simt::Global<const DeviceCopy> copies;
    KernelPages pages;
    SIMT_FUNCTION void operator()() const {
        const DeviceCopy copy = copies[simt::block_x()];
        const int64_t kv_head = simt::block_y();
        const simt::Global<uint32_t> k_from = pages.k_page(copy.src, kv_head);
        const simt::Global<uint32_t> k_to = pages.k_page(copy.dst, kv_head);
        const simt::Global<uint16_t> v_from = pages.v_page(copy.src, kv_head);
        const simt::Global<uint16_t> v_to = pages.v_page(copy.dst, kv_head);
        for (int64_t i = simt::thread_x(); i < pages.num_pairs() * copy.num_slots; i += simt::threads_x()) {
            const int64_t at = i / copy.num_slots * pages.block_size + i % copy.num_slots;
            k_to[at] = k_from[at];
        }
        for (int64_t i = simt::thread_x(); i < copy.num_slots * pages.head_dim; i += simt::threads_x()) {
            v_to[i] = v_from[i];
        }
    }
};

// Softmax states [run of a row][attention head]: m, l, o[head_dim].
struct Workspace {
    simt::Global<float> data;
    int64_t n_heads;
    int64_t head_dim;
    SIMT_FUNCTION simt::Global<float> state(int64_t run, int64_t head) const {
        return data.slice((run * n_heads + head) * (head_dim + 2), head_dim + 2);
    }
};

// Items block_x, block_x + number of blocks, ...: one run of a few consecutive rows each (DeviceQueries). Block (64, columns): a column
// is one of the rows and one attention head; its thread j is position j of a tile for s and p, and dims j, j + 64, ... for o. On
// tensor cores the block's warps share out a tile's dot products: 16 positions of K, or 16 dims of V, by all columns.
template <bool kOnTensorCores>
struct AttendItems {
    KernelBatch batch;
    simt::Global<const int32_t> blocks;
    simt::Global<const DeviceQueries> queries;  // [num_queries + 1]
    simt::Global<const int32_t> first_runs;     // [num_rows + 1]
    int32_t num_queries;
    float scale;
    int32_t group;      // attention heads of a KV head
    int32_t heads;      // of them in a block: columns are [rows][heads]
    int32_t num_parts;  // blocks that share a KV head's attention heads
    KernelRows<const float> q;
    KernelPages pages;
    Workspace workspace;

    // 64 positions of a KV head, and the rows that look at them.
    struct Tile {
        int32_t first_position;
        int32_t num_visible;  // to the last row
        int32_t first_block;
        int32_t kv_head;
        int32_t row_position;  // of the first row
        int32_t num_rows;
        // How many of the tile's positions a row at this position sees.
        [[nodiscard]] SIMT_FUNCTION int visible_from(int32_t position) const {
            const int32_t count = position + 1 - first_position;
            return count < 0 ? 0 : count < kTile ? count : kTile;
        }
    };
    struct Memory {
        simt::Shared<float> q;         // [head_dim], bf16 values
        simt::Shared<float> s;         // [64] scores
        simt::Shared<float> p;         // [64], rounded to bf16
        simt::Shared<float> partials;  // [64 + 1]
        simt::Shared<float> pv;        // [head_dim], on tensor cores
    };
    // The same of all columns.
    struct BlockMemory {
        simt::Shared<float> q;   // [columns][kMaxHeadDim]
        simt::Shared<float> s;   // [columns][64]
        simt::Shared<float> p;   // [columns][64]
        simt::Shared<float> pv;  // [columns][kMaxHeadDim]
    };
    // A column's state over the tiles so far, in each of its threads: its own dims of o.
    struct Softmax {
        float m = 0.0F;
        float l = 0.0F;
        float o[kDimsPerThread] = {};
    };

    SIMT_FUNCTION void operator()() const {
        SIMT_SHARED(float, all_q, kColumns* kMaxHeadDim);
        SIMT_SHARED(float, all_s, kColumns* kTile);
        SIMT_SHARED(float, all_p, kColumns* kTile);
        SIMT_SHARED(float, all_partials, kColumns*(kTile + 1));
        SIMT_SHARED(float, all_pv, kOnTensorCores ? kColumns* kMaxHeadDim : kColumns);
        const BlockMemory block{all_q, all_s, all_p, all_pv};
        const int y = simt::thread_y();
        const Memory memory{all_q.slice(y * kMaxHeadDim, kMaxHeadDim), all_s.slice(y * kTile, kTile),
                            all_p.slice(y * kTile, kTile), all_partials.slice(y * (kTile + 1), kTile + 1),
                            kOnTensorCores ? all_pv.slice(y * kMaxHeadDim, kMaxHeadDim) : all_pv};
        const int32_t num_items = static_cast<DeviceQueries>(queries[num_queries]).first_item;
        for (int32_t item = simt::block_x(); item < num_items; item += simt::blocks_x()) attend(item, memory, block);
    }

    // Whose item it is: the last ones whose first item is not after it.
    SIMT_FUNCTION DeviceQueries queries_of(int32_t item) const {
        int32_t found = 0;
        int32_t end = num_queries;
        while (end - found > 1) {
            const int32_t middle = (found + end) / 2;
            (static_cast<DeviceQueries>(queries[middle]).first_item <= item ? found : end) = middle;
        }
        return queries[found];
    }

    // The item's run of tiles, up to the last row's own position.
    SIMT_FUNCTION void attend(int32_t item, const Memory& memory, const BlockMemory& block) const {
        constexpr auto kRun = static_cast<int32_t>(reference::kRunPositions);
        const DeviceQueries rows = queries_of(item);
        const DeviceSequence sequence = batch.sequences[rows.sequence];
        const int32_t row_position = sequence.first_position + rows.first_row - sequence.first_row;
        const int32_t kv_head = simt::block_y() / num_parts;
        const int32_t in_group = simt::block_y() % num_parts * heads + simt::thread_y() % heads;
        const int32_t in_rows = simt::thread_y() / heads;
        const bool is_there = in_group < group && in_rows < rows.num_rows;
        const int32_t position = is_there ? row_position + in_rows : -1;  // -1 sees nothing
        const int32_t row = rows.first_row + in_rows;
        const int32_t head = kv_head * group + in_group;
        const int32_t run = item - rows.first_item;
        const int32_t first = run * kRun;
        const int32_t last = row_position + rows.num_rows - 1;
        const int32_t end = first + kRun <= last ? first + kRun : last + 1;
        stage_q(row, head, is_there, memory);
        simt::sync_block();
        Softmax softmax;
        for (int32_t begin = first; begin < end; begin += kTile) {
            const int32_t num_visible = end - begin < kTile ? end - begin : kTile;
            const Tile tile{begin, num_visible, sequence.first_block, kv_head, row_position, rows.num_rows};
            add_tile(tile, tile.visible_from(position), begin == first, memory, block, softmax);
        }
        const bool sees_some = position >= first || (SIMT_BUG(kRunOfNobody) && is_there);
        if (sees_some) store(softmax, workspace.state(first_runs[row] + run, head));
    }

    // A column that is not there is +0.
    SIMT_FUNCTION void stage_q(int64_t row, int64_t head, bool is_there, const Memory& memory) const {
        for (int64_t i = simt::thread_x(); i < pages.head_dim; i += kTile) {
            const int64_t at = head * pages.head_dim + i;
            memory.q[i] = is_there ? reference::bf16_value(q.data[q.at(row, at)]) : 0.0F;
        }
    }

    // Every thread of the block comes here; a column that sees nothing of the tile stays as it is.
    SIMT_FUNCTION void add_tile(const Tile& tile, int num_visible, bool run_begins, const Memory& memory,
                                const BlockMemory& block, Softmax& softmax) const {
        if constexpr (kOnTensorCores) tensor_scores(tile, block);
        if constexpr (!kOnTensorCores) own_score(tile, num_visible, memory);
        simt::sync_block();
        const float top = highest(num_visible, run_begins, softmax.m, memory);
        const float sum = weigh(num_visible, top, memory);
        if constexpr (kOnTensorCores) {
            tensor_values(tile, block);
            if (!SIMT_BUG(kTensorValuesEarly)) simt::sync_block();
        }
        if (num_visible > 0) {
            const float keep = run_begins ? 0.0F : reference::exp_f32(softmax.m - top);
            softmax.m = top;
            softmax.l = run_begins ? sum : reference::fma_f32(softmax.l, keep, sum);
            for (int k = 0; k < kDimsPerThread; ++k) {
                const int32_t dim = simt::thread_x() + k * kTile;
                if (dim >= pages.head_dim) continue;
                const float pv =
                    kOnTensorCores ? static_cast<float>(memory.pv[dim]) : values(tile, num_visible, dim, memory);
                softmax.o[k] = run_begins ? pv : reference::fma_f32(softmax.o[k], keep, pv);
            }
        }
        simt::sync_block();
    }

    SIMT_FUNCTION void store(const Softmax& softmax, const simt::Global<float>& state) const {
        if (simt::thread_x() == 0) {
            state[0] = softmax.m;
            state[1] = softmax.l;
        }
        for (int k = 0; k < kDimsPerThread; ++k) {
            const int32_t dim = simt::thread_x() + k * kTile;
            if (dim < pages.head_dim) state[2 + dim] = softmax.o[k];
        }
    }

    SIMT_FUNCTION int64_t block_of(const Tile& tile, int j) const {
        return blocks[tile.first_block + (tile.first_position + j) / pages.block_size];
    }

    // This thread's score into shared memory.
    SIMT_FUNCTION void own_score(const Tile& tile, int num_visible, const Memory& memory) const {
        const int j = simt::thread_x();
        const int num_read = SIMT_BUG(kReadPastPage) ? num_visible + 1 : num_visible;
        if (j < num_read) {
            const simt::Global<uint32_t> page = pages.k_page(block_of(tile, j), tile.kv_head);
            const int32_t slot = (tile.first_position + j) % pages.block_size;
            float acc = 0.0F;
            for (int32_t i = 0; i < pages.num_pairs(); ++i) {
                const uint32_t pair = page[i * pages.block_size + slot];
                if (2 * i + 1 < pages.head_dim) acc = reference::fma_f32(memory.q[2 * i + 1], odd_half(pair), acc);
                acc = reference::fma_f32(memory.q[2 * i], even_half(pair), acc);
            }
            memory.s[j] = (0.0F + acc) * scale;
        }
    }

    // The greatest of the scores and m.
    SIMT_FUNCTION float highest(int num_visible, bool run_begins, float m, const Memory& memory) const {
        float top = m;
        if (run_begins && num_visible > 0) top = memory.s[0];
        for (int i = 0; i < num_visible; ++i) top = reference::max_f32(top, memory.s[i]);
        return top;
    }

    // This thread's p, rounded, into shared memory; the N4 sum of the unrounded ones.
    SIMT_FUNCTION float weigh(int num_visible, float top, const Memory& memory) const {
        const int j = simt::thread_x();
        float p = 0.0F;
        if (j < num_visible) p = reference::exp_f32(memory.s[j] - top);
        if (!SIMT_BUG(kUninitialisedShared) || j < num_visible) memory.p[j] = reference::bf16_value(p);
        return halve(p, memory.partials);
    }

    // dot_n3 over the tile's positions: pairs in order, the odd one first; what is not visible adds nothing and is not read.
    SIMT_FUNCTION float values(const Tile& tile, int num_visible, int32_t dim, const Memory& memory) const {
        const int end = SIMT_BUG(kUninitialisedShared) ? kTile : num_visible;
        float acc = 0.0F;
        for (int j = 0; j < end; j += 2) {
            if (j + 1 < end) acc = add_value(tile, j + 1, num_visible, dim, memory, acc);
            acc = add_value(tile, j, num_visible, dim, memory, acc);
        }
        return 0.0F + acc;
    }
    SIMT_FUNCTION float add_value(const Tile& tile, int j, int num_visible, int32_t dim, const Memory& memory,
                                  float acc) const {
        const float p = memory.p[j];
        if (j >= num_visible) return acc;
        const simt::Global<uint16_t> page = pages.v_page(block_of(tile, j), tile.kv_head);
        const int32_t slot = (tile.first_position + j) % pages.block_size;
        return reference::fma_f32(p, reference::bf16_to_float(page[slot * pages.head_dim + dim]), acc);
    }

    // --- tensor.sm90: rows of mma's result are positions or dims

    // Which rows of the result a warp computes: 16 from 16 · warp on, then as many warps further.
    SIMT_FUNCTION static int warp() { return (simt::thread_y() * kTile + simt::thread_x()) / simt::kWarpSize; }
    SIMT_FUNCTION static int num_warps() { return simt::threads_y() * (kTile / simt::kWarpSize); }
    SIMT_FUNCTION static int lane() { return simt::thread_x() % simt::kWarpSize; }

    // Two bf16 values of this lane's column that lie side by side as binary32; +0 beyond what there is.
    SIMT_FUNCTION uint32_t column_pair(const simt::Shared<float>& values, int stride, int first, int count) const {
        const int column = lane() / 4;
        if (column >= simt::threads_y() || first >= count) return 0;
        const uint32_t even = reference::bits_from_float(values[column * stride + first]);
        const uint32_t odd = first + 1 < count ? reference::bits_from_float(values[column * stride + first + 1]) : 0U;
        return even >> 16 | (odd & 0xFFFF0000U);
    }
    // Of a lane's sums, acc[i]'s column.
    SIMT_FUNCTION static int column_of(int i) { return lane() % 4 * 2 + i % 2; }
    // A lane's sums of 16 rows from `first` on into [columns][stride], multiplied.
    SIMT_FUNCTION void store_sums(const float (&acc)[4], const simt::Shared<float>& out, int stride, int first,
                                  int count, float factor) const {
        SIMT_UNROLL
        for (int i = 0; i < 4; ++i) {
            const int row = first + lane() / 4 + i / 2 * 8;
            if (row < count && column_of(i) < simt::threads_y()) {
                out[column_of(i) * stride + row] = (0.0F + acc[i]) * factor;
            }
        }
    }

    SIMT_FUNCTION void tensor_scores(const Tile& tile, const BlockMemory& block) const {
        for (int first = warp() * simt::kMmaRows; first < tile.num_visible; first += num_warps() * simt::kMmaRows) {
            float acc[4] = {};
            for (int pair = lane() % 4; pair - lane() % 4 < pages.num_pairs(); pair += kGroupPairs) {
                const int row = first + lane() / 4;
                const simt::Four<uint32_t> a{{k_pair(tile, row, pair), k_pair(tile, row + 8, pair),
                                              k_pair(tile, row, pair + 4), k_pair(tile, row + 8, pair + 4)}};
                simt::mma(a, column_pair(block.q, kMaxHeadDim, 2 * pair, pages.head_dim),
                          column_pair(block.q, kMaxHeadDim, 2 * (pair + 4), pages.head_dim), acc);
            }
            store_sums(acc, block.s, kTile, first, tile.num_visible, scale);
        }
    }
    SIMT_FUNCTION uint32_t k_pair(const Tile& tile, int j, int32_t pair) const {
        if (j >= tile.num_visible || pair >= pages.num_pairs()) return 0;
        const int32_t slot = (tile.first_position + j) % pages.block_size;
        return pages.k_page(block_of(tile, j), tile.kv_head)[pair * pages.block_size + slot];
    }

    SIMT_FUNCTION void tensor_values(const Tile& tile, const BlockMemory& block) const {
        for (int first = warp() * simt::kMmaRows; first < pages.head_dim; first += num_warps() * simt::kMmaRows) {
            float acc[4] = {};
            for (int j = 0; j < tile.num_visible; j += simt::kMmaK) add_values(tile, j, first, block, acc);
            store_sums(acc, block.pv, kMaxHeadDim, first, pages.head_dim, 1.0F);
        }
    }
    // 16 positions from `first_j` on. Where they end for one row before another, a row multiplies by itself, by what it sees: a p of +0
    // would not hide a V that is not finite.
    SIMT_FUNCTION void add_values(const Tile& tile, int first_j, int first_dim, const BlockMemory& block,
                                  float (&acc)[4]) const {
        const int j = first_j + lane() % 4 * 2;
        const int dim = first_dim + lane() / 4;
        const uint32_t b0 = column_pair(block.p, kTile, j, kTile);
        const uint32_t b1 = column_pair(block.p, kTile, j + 8, kTile);
        const int last_j = first_j + simt::kMmaK < tile.num_visible ? first_j + simt::kMmaK : tile.num_visible;
        if (tile.visible_from(tile.row_position) >= last_j) {
            simt::mma(v_fragment(tile, j, dim, tile.num_visible), b0, b1, acc);
            return;
        }
        SIMT_ONE_BY_ONE
        for (int32_t row = 0; row < tile.num_rows; ++row) {
            float own[4] = {acc[0], acc[1], acc[2], acc[3]};
            const int own_visible = tile.visible_from(tile.row_position + row);
            const int num_visible = SIMT_BUG(kTensorLaterRow) ? tile.num_visible : own_visible;
            simt::mma(v_fragment(tile, j, dim, num_visible), b0, b1, own);
            SIMT_UNROLL
            for (int i = 0; i < 4; ++i) acc[i] = column_of(i) / heads == row ? own[i] : acc[i];
        }
    }
    // A lane's words of V, of positions below num_visible: what nobody sees is not read.
    SIMT_FUNCTION simt::Four<uint32_t> v_fragment(const Tile& tile, int j, int32_t dim, int num_visible) const {
        return {{v_pair(tile, j, dim, num_visible), v_pair(tile, j, dim + 8, num_visible),
                 v_pair(tile, j + 8, dim, num_visible), v_pair(tile, j + 8, dim + 8, num_visible)}};
    }
    SIMT_FUNCTION uint32_t v_pair(const Tile& tile, int j, int32_t dim, int num_visible) const {
        return v_bits(tile, j, dim, num_visible) | v_bits(tile, j + 1, dim, num_visible) << 16;
    }
    SIMT_FUNCTION uint32_t v_bits(const Tile& tile, int j, int32_t dim, int num_visible) const {
        const int num_read = SIMT_BUG(kTensorUnseenValues) ? num_visible + 1 : num_visible;
        if (j >= num_read || dim >= pages.head_dim) return 0;
        const int32_t slot = (tile.first_position + j) % pages.block_size;
        return pages.v_page(block_of(tile, j), tile.kv_head)[slot * pages.head_dim + dim];
    }
};
static_assert(kMaxHeadDim <= reference::kDotChunk, "a score is one chunk of N3");
static_assert(kMaxHeadDim <= reference::kTensorChunk && kTile <= reference::kTensorChunk, "and of tensor_dot");
static_assert(kColumns <= simt::kMmaColumns, "one mma holds a block's columns");

struct AttendRun : AttendItems<false> {};
struct TensorAttendRun : AttendItems<true> {};

// Runs left to right; out = o / l, +0 for a row without any. One block per row and attention head.
struct MergeRuns {
    simt::Global<const int32_t> first_runs;
    Workspace workspace;
    KernelRows<float> out;
    SIMT_FUNCTION void operator()() const {
        const int64_t row = simt::block_x();
        const int64_t head = simt::block_y();
        const int32_t begin = first_runs[row];
        const int32_t end = first_runs[row + 1];
        for (int64_t dim = simt::thread_x(); dim < workspace.head_dim; dim += kTile) {
            out.data[out.at(row, head * workspace.head_dim + dim)] = begin < end ? merged(begin, end, head, dim) : 0.0F;
        }
    }

    SIMT_FUNCTION float merged(int32_t begin, int32_t end, int64_t head, int64_t dim) const {
        float m = workspace.state(begin, head)[0];
        float l = workspace.state(begin, head)[1];
        float o = workspace.state(begin, head)[2 + dim];
        for (int32_t run = begin + 1; run < end; ++run) {
            const simt::Global<float> next = workspace.state(run, head);
            const float next_m = next[0];
            const float top = reference::max_f32(m, next_m);
            const float keep = reference::exp_f32(m - top);
            const float add = reference::exp_f32(next_m - top);
            l = reference::fma_f32(l, keep, next[1] * add);
            o = reference::fma_f32(o, keep, next[2 + dim] * add);
            m = top;
        }
        return o / l;
    }
};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
