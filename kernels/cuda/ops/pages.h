// kernels/cuda/ops/pages.h: owns the rotary embedding, and a layer's KV pages: writing them and copying tails.
#pragma once

#include "kernels/cuda/ops/rows.h"
#include "kernels/cuda/ops/states.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

// reference/ops/rope.h, in place. An element of a row is a pair of a head.
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

// For non-negative numbers: one multiplication; a product of two 64-bit numbers takes four.
SIMT_FUNCTION int64_t wide_product(int32_t a, int32_t b) {
    return static_cast<int64_t>(uint64_t{static_cast<uint32_t>(a)} * static_cast<uint32_t>(b));
}

// A layer's pages (DevicePages), addressed by page.
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
    // The number of a slot among all slots of all pages.
    SIMT_FUNCTION int32_t slot_number(int64_t block, int64_t kv_head, int32_t slot) const {
        return static_cast<int32_t>((block * n_kv_heads + kv_head) * block_size + slot);
    }
    // K from a slot on: the next pair of dims is block_size words further.
    SIMT_FUNCTION simt::Global<uint32_t> k_of(int32_t number, int32_t slot) const {
        return k.slice(wide_product(number - slot, num_pairs()) + slot, num_pairs() * block_size - slot);
    }
    SIMT_FUNCTION simt::Global<uint16_t> v_of(int32_t number) const {
        return v.slice(wide_product(number, head_dim), head_dim);
    }
    [[nodiscard]] SIMT_FUNCTION bool has_v_pairs() const { return head_dim % 2 == 0; }
    // Dims `dim` and `dim` + 1 of a slot's V; the second is +0 beyond head_dim. kInPairs: has_v_pairs(), and `dim` is
    // even.
    template <bool kInPairs>
    SIMT_FUNCTION uint32_t v_pair(const simt::Global<uint16_t>& slot, int32_t dim) const {
        if constexpr (kInPairs) return simt::load2(slot, dim);
        const uint32_t first = slot[dim];
        return dim + 1 < head_dim ? first | static_cast<uint32_t>(slot[dim + 1]) << 16 : first;
    }
};

// Rounds K and V of the batch's rows to bf16 and stores them in their pages. A thread writes a pair of K and of V.
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

// A step's tail copies, slots [0, num_slots) each. One CTA per copy and KV head.
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

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
