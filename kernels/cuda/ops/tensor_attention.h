// kernels/cuda/ops/tensor_attention.h: owns attention's dot products on tensor cores (tensor.sm90). The rows of mma's
// result are 16 positions of K, or 16 dims of V; its columns are the CTA's columns.
#pragma once

#include "kernels/cuda/ops/attention.h"
#include "kernels/cuda/ops/tensor_matmul.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

// A tile's V in its pages: the address of a position, and two neighbouring dims of it.
template <bool kInPairs>
struct PagedValues {
    const KernelPages& pages;
    const simt::Shared<int32_t>& places;
    int tile;
    SIMT_FUNCTION int32_t place(int position) const { return places[tile * kTile + position]; }
    SIMT_FUNCTION uint32_t pair(int32_t place, int dim) const {
        return pages.template v_pair<kInPairs>(pages.v_of(place), dim);
    }
};

struct TensorDots {
    static constexpr int kColumns = simt::kMmaColumns;
    static_assert(kMaxHeadDim <= reference::kTensorChunk && kTile <= reference::kTensorChunk, "one chunk each");
    using Sums = float[kPartDims / simt::kMmaRows][4];

    SIMT_FUNCTION static int own_column() { return simt::thread_x() / 4; }
    // Packs two adjacent binary32 values, which are bf16, into a pair.
    SIMT_FUNCTION static uint32_t pair_of(const simt::Shared<float>& values, int first) {
        return reference::bits_from_float(values[first]) >> 16 |
               (reference::bits_from_float(values[first + 1]) & 0xFFFF0000U);
    }

    template <int kBlockSize>
    SIMT_FUNCTION static void scores(const AttendParameters& of, const AttendItem& item, const AttendMemory& memory) {
        for (int first = simt::thread_y() * simt::kMmaRows; first < item.num_visible;
             first += kAttendWarps * simt::kMmaRows) {
            const int j = first + simt::thread_x() / 4;
            float acc[4] = {};
            multiply_k<kBlockSize>(of, j, item.num_visible, memory, acc);
            leave_scores(of, item, j, acc, memory);
        }
    }
    SIMT_FUNCTION static void leave_scores(const AttendParameters& of, const AttendItem& item, int j,
                                           const float (&acc)[4], const AttendMemory& memory) {
        SIMT_UNROLL
        for (int i = 0; i < 4; ++i) {
            const int row = j + i / 2 * 8;
            if (row < item.num_visible) {
                memory.s[(simt::thread_x() % 4 * 2 + i % 2) * kRun + row] = (0.0F + acc[i]) * of.scale;
            }
        }
    }
    // This lane's rows of mma's result: positions j and j + 8 of the run.
    template <int kBlockSize>
    SIMT_FUNCTION static void multiply_k(const AttendParameters& of, int j, int num_visible, const AttendMemory& memory,
                                         float (&acc)[4]) {
        const bool there[2] = {j < num_visible, j + 8 < num_visible};
        const int places[2] = {there[0] ? j : 0, there[1] ? j + 8 : 0};
        const simt::Global<uint32_t> k[2] = {of.pages.k_of(memory.places[places[0]], memory.places[kRun + places[0]]),
                                             of.pages.k_of(memory.places[places[1]], memory.places[kRun + places[1]])};
        const int stride = kBlockSize > 0 ? kBlockSize : of.pages.block_size;
        multiply_rows(of.pages.num_pairs(), there, memory, acc,
                      [&](int row, int pair) { return k[row][pair * stride]; });
    }
    // k(row, pair): for this lane's first or second row; the first always exists.
    template <typename Pair>
    SIMT_FUNCTION static void multiply_rows(int num_pairs, const bool (&there)[2], const AttendMemory& memory,
                                            float (&acc)[4], const Pair& k) {
        for (int first = 0; first < num_pairs; first += kGroupPairs) {
            const int pair = first + simt::thread_x() % 4;
            uint32_t words[4] = {};
            SIMT_UNROLL
            for (int i = 0; i < 4; ++i) {
                const int more = i / 2 * 4;
                if (there[i % 2] && pair + more < num_pairs) words[i] = k(i % 2, pair + more);
            }
            const int q = own_column() * kMaxHeadDim + 2 * pair;
            simt::mma({{words[0], words[1], words[2], words[3]}}, pair_of(memory.q, q), pair_of(memory.q, q + 8), acc);
        }
    }

    // Dims [first_dim, first_dim + 64) of a tile's p·v.
    SIMT_FUNCTION static void values(const AttendParameters& of, const AttendItem& item, int tile, int first_dim,
                                     const AttendMemory& memory, const simt::Shared<float>& pv) {
        Sums acc = {};
        if (of.pages.has_v_pairs()) {
            add_tile(of, item, tile, first_dim, memory, PagedValues<true>{of.pages, memory.places, tile}, acc);
        } else {
            add_tile(of, item, tile, first_dim, memory, PagedValues<false>{of.pages, memory.places, tile}, acc);
        }
        leave_values(of, first_dim, acc, pv);
    }
    SIMT_FUNCTION static void leave_values(const AttendParameters& of, int first_dim, const Sums& acc,
                                           const simt::Shared<float>& pv) {
        for_all([&](int d, int i) {
            const int dim = dim_of(first_dim, d) + i / 2;
            const int column = simt::thread_x() % 4 * 2 + i % 2;
            if (dim < of.pages.head_dim) pv[column * of.pages.head_dim + dim] = 0.0F + acc[d][i];
        });
    }
    // Rows g and g + 8 of mma's d-th result are two neighbouring dims, which are adjacent in V; returns the first one.
    SIMT_FUNCTION static int dim_of(int first_dim, int d) {
        return first_dim + d * simt::kMmaRows + simt::thread_x() / 4 * 2;
    }
    template <typename Call>
    SIMT_FUNCTION static void for_all(const Call& call) {
        SIMT_UNROLL
        for (int d = 0; d < kPartDims / simt::kMmaRows; ++d) {
            SIMT_UNROLL
            for (int i = 0; i < 4; ++i) call(d, i);
        }
    }

    template <typename Values>
    SIMT_FUNCTION static void add_tile(const AttendParameters& of, const AttendItem& item, int tile, int first_dim,
                                       const AttendMemory& memory, const Values& v, Sums& acc) {
        const int num_read = item.seen_by_last(tile);
        for (int first = 0; first < num_read; first += simt::kMmaK) {
            const int end = first + simt::kMmaK < num_read ? first + simt::kMmaK : num_read;
            if (item.seen_of(tile, item.row_position) >= end) {
                add_positions(of, tile, first, end, first_dim, memory, v, acc);
            } else {
                add_by_rows(of, item, tile, first, first_dim, memory, v, acc);
            }
        }
    }
    // Positions [first, end) of a tile, 16 at most, for all columns. Positions after them are not read.
    template <typename Values>
    SIMT_FUNCTION static void add_positions(const AttendParameters& of, int tile, int first, int end, int first_dim,
                                            const AttendMemory& memory, const Values& values, Sums& acc) {
        const int j = first + simt::thread_x() % 4 * 2;
        const int p = own_column() * kRun + tile * kTile + j;
        const uint32_t b0 = pair_of(memory.s, p);
        const uint32_t b1 = pair_of(memory.s, p + 8);
        const int own[4] = {j, j + 1, j + 8, j + 9};  // positions of this lane
        int32_t places[4];
        SIMT_UNROLL
        for (int i = 0; i < 4; ++i) places[i] = values.place(own[i] < end ? own[i] : first);
        SIMT_UNROLL
        for (int d = 0; d < kPartDims / simt::kMmaRows; ++d) {
            const int dim = dim_of(first_dim, d);
            uint32_t v[4] = {};  // two dims of each position
            SIMT_UNROLL
            for (int i = 0; i < 4; ++i) {
                if (own[i] >= end || dim >= of.pages.head_dim) continue;
                v[i] = values.pair(places[i], dim);
            }
            simt::mma({{lower(v[0], v[1]), upper(v[0], v[1]), lower(v[2], v[3]), upper(v[2], v[3])}}, b0, b1, acc[d]);
        }
    }
    // Packs the lower or the upper halves of two words.
    SIMT_FUNCTION static uint32_t lower(uint32_t a, uint32_t b) { return (a & 0xFFFFU) | b << 16; }
    SIMT_FUNCTION static uint32_t upper(uint32_t a, uint32_t b) { return a >> 16 | (b & 0xFFFF0000U); }

    // When the visible range ends earlier for some rows, each row multiplies separately with the positions that it
    // sees: a p of +0 would not mask a V that is not finite.
    template <typename Values>
    SIMT_FUNCTION static void add_by_rows(const AttendParameters& of, const AttendItem& item, int tile, int first,
                                          int first_dim, const AttendMemory& memory, const Values& v, Sums& acc) {
        SIMT_ONE_BY_ONE
        for (int32_t row = 0; row < item.rows.num_rows; ++row) {
            const int seen = item.seen_of(tile, item.row_position + row);
            const int own_end = first + simt::kMmaK < seen ? first + simt::kMmaK : seen;
            if (own_end <= first) continue;
            Sums own;
            for_all([&](int d, int i) { own[d][i] = acc[d][i]; });
            add_positions(of, tile, first, own_end, first_dim, memory, v, own);
            for_all([&](int d, int i) {
                if ((simt::thread_x() % 4 * 2 + i % 2) / of.heads == row) acc[d][i] = own[d][i];
            });
        }
    }
};

struct TensorAttendRun : AttendItems<TensorDots> {};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
