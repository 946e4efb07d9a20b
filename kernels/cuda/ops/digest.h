// kernels/cuda/ops/digest.h: owns the ElementSums of a head's data in place (reference/head_digest.h): each thread sums
// its share; the order does not matter.
#pragma once

#include "kernels/cuda/ops/attention.h"
#include "reference/numerics/element_sum.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

inline constexpr int kSumThreads = 256;

// Adds the sums of a CTA's threads to two words. Every thread of the CTA calls it once.
SIMT_FUNCTION void add_up(const reference::ElementSum& mine, const simt::Global<uint64_t>& sum) {
    SIMT_SHARED(uint64_t, total, 2);
    if (simt::thread_x() < 2) total[simt::thread_x()] = 0;
    simt::sync_block();
    simt::atomic_add(total, 0, mine.low);
    simt::atomic_add(total, 1, mine.high);
    simt::sync_block();
    if (simt::thread_x() < 2) simt::atomic_add(sum, simt::thread_x(), total[simt::thread_x()]);
}

struct SumFloats {
    simt::Global<const float> values;
    int64_t count;
    simt::Global<uint64_t> sum;  // [2]
    SIMT_FUNCTION void operator()() const {
        reference::ElementSum mine;
        const int64_t stride = int64_t{simt::blocks_x()} * simt::threads_x();
        for (int64_t i = int64_t{simt::block_x()} * simt::threads_x() + simt::thread_x(); i < count; i += stride) {
            mine.add(i, reference::bits_from_float(values[i]));
        }
        add_up(mine, sum);
    }
};

// Sums of a sequence's first positions, elements of [length, n_kv_heads, head_dim]: CTAs with y = 0 sum K, y = 1 V.
// Pages are read in their layout.
struct SumKv {
    simt::Global<const int32_t> blocks;  // [num_blocks]
    int64_t num_blocks;
    int64_t length;
    KernelPages pages;
    simt::Global<uint64_t> sums;  // [4]
    SIMT_FUNCTION void operator()() const {
        reference::ElementSum mine;
        for (int64_t i = simt::block_x(); i < num_blocks; i += simt::blocks_x()) {
            if (simt::block_y() == 0) sum_keys(i, mine);
            if (simt::block_y() == 1) sum_values(i, mine);
        }
        add_up(mine, sums.slice(2 * simt::block_y(), 2));
    }

    // For the table's block i.
    SIMT_FUNCTION void sum_keys(int64_t i, reference::ElementSum& mine) const {
        const int64_t page_pairs = int64_t{pages.num_pairs()} * pages.block_size;
        for (int64_t e = simt::thread_x(); e < pages.n_kv_heads * page_pairs; e += simt::threads_x()) {
            const int64_t kv_head = e / page_pairs;
            const int64_t dim = e % page_pairs / pages.block_size * 2;
            const int64_t position = i * pages.block_size + e % pages.block_size;
            if (position >= length) continue;
            const uint32_t pair = pages.k_page(blocks[i], kv_head)[e % page_pairs];
            const int64_t place = (position * pages.n_kv_heads + kv_head) * pages.head_dim + dim;
            mine.add(place, pair & 0xFFFFU);
            if (dim + 1 < pages.head_dim) mine.add(place + 1, pair >> 16);
        }
    }
    SIMT_FUNCTION void sum_values(int64_t i, reference::ElementSum& mine) const {
        const int64_t page_size = int64_t{pages.block_size} * pages.head_dim;
        for (int64_t e = simt::thread_x(); e < pages.n_kv_heads * page_size; e += simt::threads_x()) {
            const int64_t kv_head = e / page_size;
            const int64_t position = i * pages.block_size + e % page_size / pages.head_dim;
            if (position >= length) continue;
            const uint16_t value = pages.v_page(blocks[i], kv_head)[e % page_size];
            mine.add((position * pages.n_kv_heads + kv_head) * pages.head_dim + e % pages.head_dim, value);
        }
    }
};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
