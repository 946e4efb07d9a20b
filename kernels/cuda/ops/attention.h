// kernels/cuda/ops/attention.h: rotary, pages, and N5's attention. Its work is a list of items, the runs of 8 tiles of each query row:
// a fixed number of blocks takes item after item for the heads of a KV head, however long the sequences are, and a second
// kernel merges a row's runs left to right.
#pragma once

#include "kernels/cuda/ops/mamba.h"
#include "kernels/cuda/ops/matmul.h"
#include "kernels/cuda/ops/norms.h"
#include "kernels/cuda/ops/tensor_matmul.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

inline constexpr int kTile = static_cast<int>(reference::kKvTile);
inline constexpr int kHeadsPerBlock = 4;  // threads_y at most: attention heads of one KV head
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

// Softmax states [item][attention head]: m, l, o[head_dim].
struct Workspace {
    simt::Global<float> data;
    int64_t n_heads;
    int64_t head_dim;
    SIMT_FUNCTION simt::Global<float> state(int64_t item, int64_t head) const {
        return data.slice((item * n_heads + head) * (head_dim + 2), head_dim + 2);
    }
};

// Items block_x, block_x + number of blocks, ...: one run of one row each. Block (64, heads): thread j is position j of a tile for
// s and p, and dims j, j + 64, ... for o. On tensor cores the block's warps share out a tile's dot products: 16 positions of K, or 16
// dims of V, by the block's heads.
template <bool kOnTensorCores>
struct AttendItems {
    KernelBatch batch;
    simt::Global<const int32_t> positions;
    simt::Global<const int32_t> row_sequences;
    simt::Global<const int32_t> blocks;
    simt::Global<const int32_t> first_items;  // [num_rows + 1]
    int32_t num_rows;
    float scale;
    int32_t group;      // attention heads of a KV head
    int32_t num_parts;  // blocks that share a KV head's attention heads
    KernelRows<const float> q;
    KernelPages pages;
    Workspace workspace;

    struct Tile {
        int32_t first_position;
        int32_t num_visible;
        int32_t first_block;
        int32_t kv_head;
    };
    struct Memory {
        simt::Shared<float> q;         // [head_dim], bf16 values
        simt::Shared<float> s;         // [64] scores
        simt::Shared<float> p;         // [64], rounded to bf16
        simt::Shared<float> partials;  // [64 + 1]
        simt::Shared<float> pv;        // [head_dim], on tensor cores
    };
    // The same of all of the block's heads.
    struct BlockMemory {
        simt::Shared<float> q;   // [heads][kMaxHeadDim]
        simt::Shared<float> s;   // [heads][64]
        simt::Shared<float> p;   // [heads][64]
        simt::Shared<float> pv;  // [heads][kMaxHeadDim]
    };

    SIMT_FUNCTION void operator()() const {
        SIMT_SHARED(float, all_q, kHeadsPerBlock* kMaxHeadDim);
        SIMT_SHARED(float, all_s, kHeadsPerBlock* kTile);
        SIMT_SHARED(float, all_p, kHeadsPerBlock* kTile);
        SIMT_SHARED(float, all_partials, kHeadsPerBlock*(kTile + 1));
        SIMT_SHARED(float, all_pv, kOnTensorCores ? kHeadsPerBlock* kMaxHeadDim : kHeadsPerBlock);
        const BlockMemory block{all_q, all_s, all_p, all_pv};
        const int y = simt::thread_y();
        const Memory memory{all_q.slice(y * kMaxHeadDim, kMaxHeadDim), all_s.slice(y * kTile, kTile),
                            all_p.slice(y * kTile, kTile), all_partials.slice(y * (kTile + 1), kTile + 1),
                            kOnTensorCores ? all_pv.slice(y * kMaxHeadDim, kMaxHeadDim) : all_pv};
        const int32_t kv_head = simt::block_y() / num_parts;
        const int32_t in_group = simt::block_y() % num_parts * kHeadsPerBlock + y;
        const bool mine = in_group < group;
        const int32_t head = mine ? kv_head * group + in_group : 0;
        const int32_t num_items = first_items[num_rows];
        for (int32_t item = simt::block_x(); item < num_items; item += simt::blocks_x()) {
            const int32_t row = row_of(item);
            if (mine) stage_q(row, head, memory);
            simt::sync_block();
            attend(row, item, kv_head, memory, block, workspace.state(item, head), mine);
        }
    }

    // The last row whose first item is not after `item`.
    SIMT_FUNCTION int32_t row_of(int32_t item) const {
        int32_t row = 0;
        int32_t end = num_rows;
        while (end - row > 1) {
            const int32_t middle = (row + end) / 2;
            (first_items[middle] <= item ? row : end) = middle;
        }
        return row;
    }

    SIMT_FUNCTION void stage_q(int64_t row, int64_t head, const Memory& memory) const {
        for (int64_t i = simt::thread_x(); i < pages.head_dim; i += kTile) {
            memory.q[i] = reference::bf16_value(q.data[q.at(row, head * pages.head_dim + i)]);
        }
    }

    // The item's run of tiles, up to the row's own position.
    SIMT_FUNCTION void attend(int32_t row, int32_t item, int32_t kv_head, const Memory& memory,
                              const BlockMemory& block, const simt::Global<float>& result, bool mine) const {
        constexpr auto kRun = static_cast<int32_t>(reference::kRunPositions);
        const DeviceSequence sequence = batch.sequences[row_sequences[row]];
        const int32_t first = (item - first_items[row]) * kRun;
        const int32_t position = positions[row];
        float m = 0.0F;
        float l = 0.0F;
        float o[kDimsPerThread] = {};
        const int32_t end = first + kRun <= position ? first + kRun : position + 1;
        for (int32_t begin = first; begin < end; begin += kTile) {
            const Tile tile{begin, end - begin < kTile ? end - begin : kTile, sequence.first_block, kv_head};
            const bool run_begins = begin == first;
            if constexpr (kOnTensorCores) tensor_scores(tile, block);
            if constexpr (!kOnTensorCores) own_score(tile, memory, mine);
            simt::sync_block();
            const float top = highest(tile, run_begins, m, memory);
            const float sum = weigh(tile, top, memory);
            if constexpr (kOnTensorCores) {
                tensor_values(tile, block);
                if (!SIMT_BUG(kTensorValuesEarly)) simt::sync_block();
            }
            const float keep = run_begins ? 0.0F : reference::exp_f32(m - top);
            l = run_begins ? sum : reference::fma_f32(l, keep, sum);
            for (int k = 0; k < kDimsPerThread; ++k) {
                const int32_t dim = simt::thread_x() + k * kTile;
                if (!mine || dim >= pages.head_dim) continue;
                const float pv = kOnTensorCores ? static_cast<float>(memory.pv[dim]) : values(tile, dim, memory);
                o[k] = run_begins ? pv : reference::fma_f32(o[k], keep, pv);
            }
            m = top;
            simt::sync_block();
        }
        if (!mine) return;
        if (simt::thread_x() == 0) {
            result[0] = m;
            result[1] = l;
        }
        for (int k = 0; k < kDimsPerThread; ++k) {
            const int32_t dim = simt::thread_x() + k * kTile;
            if (dim < pages.head_dim) result[2 + dim] = o[k];
        }
    }

    SIMT_FUNCTION int64_t block_of(const Tile& tile, int j) const {
        return blocks[tile.first_block + (tile.first_position + j) / pages.block_size];
    }

    // This thread's score into shared memory.
    SIMT_FUNCTION void own_score(const Tile& tile, const Memory& memory, bool mine) const {
        const int j = simt::thread_x();
        const int num_read = SIMT_BUG(kReadPastPage) ? tile.num_visible + 1 : tile.num_visible;
        if (j < num_read) {
            const simt::Global<uint32_t> page = pages.k_page(block_of(tile, j), tile.kv_head);
            const int32_t slot = (tile.first_position + j) % pages.block_size;
            float acc = 0.0F;
            for (int32_t i = 0; mine && i < pages.num_pairs(); ++i) {
                const uint32_t pair = page[i * pages.block_size + slot];
                if (2 * i + 1 < pages.head_dim) acc = reference::fma_f32(memory.q[2 * i + 1], odd_half(pair), acc);
                acc = reference::fma_f32(memory.q[2 * i], even_half(pair), acc);
            }
            memory.s[j] = (0.0F + acc) * scale;
        }
    }

    // The greatest of the tile's scores and m.
    SIMT_FUNCTION float highest(const Tile& tile, bool run_begins, float m, const Memory& memory) const {
        float top = m;
        if (run_begins) top = memory.s[0];
        for (int i = 0; i < tile.num_visible; ++i) top = reference::max_f32(top, memory.s[i]);
        return top;
    }

    // This thread's p, rounded, into shared memory; the N4 sum of the unrounded ones.
    SIMT_FUNCTION float weigh(const Tile& tile, float top, const Memory& memory) const {
        const int j = simt::thread_x();
        float p = 0.0F;
        if (j < tile.num_visible) p = reference::exp_f32(memory.s[j] - top);
        if (!SIMT_BUG(kUninitialisedShared) || j < tile.num_visible) memory.p[j] = reference::bf16_value(p);
        return halve(p, memory.partials);
    }

    // --- tensor.sm90: rows of mma's result are positions or dims, its columns the block's heads

    // Which rows of the result a warp computes: 16 from 16 · warp on, then as many warps further.
    SIMT_FUNCTION static int warp() { return (simt::thread_y() * kTile + simt::thread_x()) / simt::kWarpSize; }
    SIMT_FUNCTION static int num_warps() { return simt::threads_y() * (kTile / simt::kWarpSize); }
    SIMT_FUNCTION static int lane() { return simt::thread_x() % simt::kWarpSize; }

    // Heads that the block has queries of.
    SIMT_FUNCTION int num_heads() const {
        const int left = group - simt::block_y() % num_parts * kHeadsPerBlock;
        return left < simt::threads_y() ? left : simt::threads_y();
    }
    // Two bf16 values that lie side by side as binary32, of the head that is this lane's column; +0 beyond what there is.
    SIMT_FUNCTION uint32_t column_pair(const simt::Shared<float>& values, int stride, int first, int count) const {
        const int head = lane() / 4;
        if (head >= num_heads() || first >= count) return 0;
        const uint32_t even = reference::bits_from_float(values[head * stride + first]);
        const uint32_t odd = first + 1 < count ? reference::bits_from_float(values[head * stride + first + 1]) : 0U;
        return even >> 16 | (odd & 0xFFFF0000U);
    }
    // A lane's sums of 16 rows from `first` on into [heads][stride], multiplied.
    SIMT_FUNCTION void store_sums(const float (&acc)[4], const simt::Shared<float>& out, int stride, int first,
                                  int count, float factor) const {
        SIMT_UNROLL
        for (int i = 0; i < 4; ++i) {
            const int row = first + lane() / 4 + i / 2 * 8;
            const int head = lane() % 4 * 2 + i % 2;
            if (row < count && head < simt::threads_y()) out[head * stride + row] = (0.0F + acc[i]) * factor;
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
            for (int pair = lane() % 4; 2 * (pair - lane() % 4) < tile.num_visible; pair += kGroupPairs) {
                const int dim = first + lane() / 4;
                const simt::Four<uint32_t> a{{v_pair(tile, pair, dim), v_pair(tile, pair, dim + 8),
                                              v_pair(tile, pair + 4, dim), v_pair(tile, pair + 4, dim + 8)}};
                simt::mma(a, column_pair(block.p, kTile, 2 * pair, tile.num_visible),
                          column_pair(block.p, kTile, 2 * (pair + 4), tile.num_visible), acc);
            }
            store_sums(acc, block.pv, kMaxHeadDim, first, pages.head_dim, 1.0F);
        }
    }
    // Positions 2 · pair and the next one; what nobody sees is not read.
    SIMT_FUNCTION uint32_t v_pair(const Tile& tile, int pair, int32_t dim) const {
        return v_bits(tile, 2 * pair, dim) | v_bits(tile, 2 * pair + 1, dim) << 16;
    }
    SIMT_FUNCTION uint32_t v_bits(const Tile& tile, int j, int32_t dim) const {
        const int num_read = SIMT_BUG(kTensorUnseenValues) ? tile.num_visible + 1 : tile.num_visible;
        if (j >= num_read || dim >= pages.head_dim) return 0;
        const int32_t slot = (tile.first_position + j) % pages.block_size;
        return pages.v_page(block_of(tile, j), tile.kv_head)[slot * pages.head_dim + dim];
    }

    // dot_n3 over the tile's positions: pairs in order, the odd one first; what is not visible adds nothing and is not read.
    SIMT_FUNCTION float values(const Tile& tile, int32_t dim, const Memory& memory) const {
        const int end = SIMT_BUG(kUninitialisedShared) ? kTile : tile.num_visible;
        float acc = 0.0F;
        for (int j = 0; j < end; j += 2) {
            if (j + 1 < end) acc = add_value(tile, j + 1, dim, memory, acc);
            acc = add_value(tile, j, dim, memory, acc);
        }
        return 0.0F + acc;
    }
    SIMT_FUNCTION float add_value(const Tile& tile, int j, int32_t dim, const Memory& memory, float acc) const {
        const float p = memory.p[j];
        if (j >= tile.num_visible) return acc;
        const simt::Global<uint16_t> page = pages.v_page(block_of(tile, j), tile.kv_head);
        const int32_t slot = (tile.first_position + j) % pages.block_size;
        return reference::fma_f32(p, reference::bf16_to_float(page[slot * pages.head_dim + dim]), acc);
    }
};
static_assert(kMaxHeadDim <= reference::kDotChunk, "a score is one chunk of N3");
static_assert(kMaxHeadDim <= reference::kTensorChunk && kTile <= reference::kTensorChunk, "and of tensor_dot");

struct AttendRun : AttendItems<false> {};
struct TensorAttendRun : AttendItems<true> {};

// Runs left to right; out = o / l, +0 for a row without any. One block per row and attention head.
struct MergeRuns {
    simt::Global<const int32_t> first_items;
    Workspace workspace;
    KernelRows<float> out;
    SIMT_FUNCTION void operator()() const {
        const int64_t row = simt::block_x();
        const int64_t head = simt::block_y();
        const int32_t begin = first_items[row];
        const int32_t end = first_items[row + 1];
        for (int64_t dim = simt::thread_x(); dim < workspace.head_dim; dim += kTile) {
            out.data[out.at(row, head * workspace.head_dim + dim)] = begin < end ? merged(begin, end, head, dim) : 0.0F;
        }
    }

    SIMT_FUNCTION float merged(int32_t begin, int32_t end, int64_t head, int64_t dim) const {
        float m = workspace.state(begin, head)[0];
        float l = workspace.state(begin, head)[1];
        float o = workspace.state(begin, head)[2 + dim];
        for (int32_t item = begin + 1; item < end; ++item) {
            const simt::Global<float> next = workspace.state(item, head);
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
