// kernels/cuda/ops/tensor_matvec.h: owns matmuls of up to 8 rows on tensor cores (ops/tensor_matmul.h defines the dot
// products), fused with the operations before and after (ops/matvec_parts.h).
#pragma once

#include "kernels/cuda/ops/matvec_parts.h"
#include "kernels/cuda/ops/tensor_matmul.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

// Weights are fragments. A warp computes 16 outputs over one chunk directly from global memory, with 16 bytes per lane
// for each of kAhead groups in flight at once. CTAs of (32, 8) threads: chunk_warps warps take the chunks of 16 outputs
// in parallel, and the chunk sums are added in order; with kSwiglu the second half of the warps computes up.
template <bool kNormed>
struct TensorMatvecOf : MatvecParts {
    int32_t chunk_warps;  // 1, 2, 4 or 8; with kSwiglu at most 4

    static constexpr int kRows = simt::kMmaColumns;
    static constexpr int kWarps = 8;
    static constexpr int kAhead = 8;
    static constexpr int kThreads = kWarps * simt::kWarpSize;
    // Limits registers such that the compiler issues all loads before the first use
    static constexpr int kResidentBlocks = 2;
    // Weights, which no kernel writes, are prefetched while earlier kernels end
    static constexpr bool kDependent = true;
    static constexpr int kPadding = 4;  // words after a normed row: eight rows then lie in different banks
    static constexpr int kInputWords = static_cast<int>(kMatvecNormRows * (kMatvecNormWidth / 2 + kPadding));
    static constexpr int kSharedBytes = kNormed ? kInputWords * 4 : 0;
    static constexpr int kSums = kWarps * simt::kMmaRows * kRows;
    static_assert(kChunkGroups % kAhead == 0);

    struct Weights {
        simt::Four<uint32_t> of_group[kAhead];
    };
    // The tile and chunk whose sums a warp computes.
    struct Part {
        simt::Global<const uint32_t> fragments;
        int64_t first_word;  // offset of the tile plus the lane's in it
        bool is_there;
        int chunk;     // number in the current iteration
        int in_block;  // tile number in the CTA
    };
    template <typename Data>
    struct Inputs {
        Data data;
        int stride;  // words between rows
    };

    SIMT_FUNCTION void operator()() const {
        SIMT_SHARED(float, sums, kSums);
        SIMT_SHARED(float, totals, kSums);  // [kRows][outputs]
        const Part part = this_part();
        const Weights weights = fetch(part, part.chunk * kChunkGroups);
        simt::wait_previous();
        simt::release_next();
        if constexpr (kNormed) {
            SIMT_LARGE_SHARED(uint32_t, inputs, kInputWords);
            SIMT_SHARED(float, tile, kMatvecNormWidth);
            SIMT_SHARED(float, partials, kPartials);
            take_norm(tile, partials, inputs, row_pairs + kPadding);
            add_chunks(part, weights, Inputs<simt::Shared<uint32_t>>{inputs, num_groups() * kGroupPairs + kPadding},
                       sums, totals);
        } else {
            add_chunks(part, weights, Inputs<simt::Global<const uint32_t>>{pairs, num_groups() * kGroupPairs}, sums,
                       totals);
        }
        finish(totals, num_outputs());
    }

    [[nodiscard]] SIMT_FUNCTION int num_groups() const { return static_cast<int>(row_pairs) / kGroupPairs; }
    [[nodiscard]] SIMT_FUNCTION int num_tiles() const { return kWarps / chunk_warps; }            // per CTA
    [[nodiscard]] SIMT_FUNCTION int num_outputs() const { return num_tiles() * simt::kMmaRows; }  // per CTA

    SIMT_FUNCTION Part this_part() const {
        const int in_block = simt::thread_y() / chunk_warps;
        const bool beside = end == MatvecEnd::kSwiglu;
        const int tiles = beside ? num_tiles() / 2 : num_tiles();  // per matrix
        const int matrix = beside ? in_block / tiles : block_matrix();
        const int64_t tile = int64_t{beside ? simt::block_x() : block_of_matrix()} * tiles + in_block % tiles;
        const int64_t width = one_of(matrix, first.out.width, second.out.width, third.out.width);
        return {one_of(matrix, first.weight, second.weight, third.weight),
                tile * num_groups() * kFragmentWords + simt::thread_x() * 4, tile * simt::kMmaRows < width,
                simt::thread_y() % chunk_warps, in_block};
    }

    // Loads kAhead groups of a chunk, as far as they exist.
    SIMT_FUNCTION Weights fetch(const Part& part, int group) const {
        Weights weights = {};
        const int count = part.is_there ? num_groups() - group : 0;
        const int64_t word = part.first_word + int64_t{group} * kFragmentWords;
        SIMT_UNROLL
        for (int i = 0; i < kAhead; ++i) {
            if (i < count) weights.of_group[i] = simt::load4(part.fragments, word + i * kFragmentWords);
        }
        return weights;
    }

    // Computes the sums of every chunk and adds them in order.
    template <typename Data>
    SIMT_FUNCTION void add_chunks(const Part& part, Weights weights, const Inputs<Data>& inputs,
                                  const simt::Shared<float>& sums, const simt::Shared<float>& totals) const {
        const int turn_groups = chunk_warps * kChunkGroups;
        for (int turn = 0; turn < num_groups(); turn += turn_groups) {
            leave_chunk(part, turn + part.chunk * kChunkGroups, weights, inputs, sums);
            const int left = (num_groups() - turn + kChunkGroups - 1) / kChunkGroups;
            simt::sync_block();
            add_in_order(sums, left < chunk_warps ? left : chunk_warps, kRows * num_outputs(), turn == 0, totals);
            simt::sync_block();
        }
    }
    // Stores the sums of the chunk that begins at group `begin`, if it exists: [chunks][kRows][outputs]. `weights`
    // holds its first groups, and on return those of the warp's next chunk.
    template <typename Data>
    SIMT_FUNCTION void leave_chunk(const Part& part, int begin, Weights& weights, const Inputs<Data>& inputs,
                                   const simt::Shared<float>& sums) const {
        if (begin >= num_groups()) return;
        const int end_group = begin + kChunkGroups < num_groups() ? begin + kChunkGroups : num_groups();
        float acc[4] = {};
        for (int group = begin; part.is_there && group < end_group; group += kAhead) {
            add_groups(weights, inputs, group, acc);
            const int next = group + kAhead;
            weights = fetch(part, next < end_group ? next : begin + chunk_warps * kChunkGroups);
        }
        SIMT_UNROLL
        for (int i = 0; i < 4; ++i) {
            const int row = simt::thread_x() % 4 * 2 + i % 2;
            const int output = part.in_block * simt::kMmaRows + simt::thread_x() / 4 + i / 2 * 8;
            sums[(part.chunk * kRows + row) * num_outputs() + output] = acc[i];
        }
    }
    // Skips groups that do not exist; rows that do not exist are +0.
    template <typename Data>
    SIMT_FUNCTION void add_groups(const Weights& weights, const Inputs<Data>& inputs, int group,
                                  float (&acc)[4]) const {
        const int row = simt::thread_x() / 4;
        const int count = num_groups() - group;
        const int num_there = row < num_rows ? count : 0;
        const int place = row * inputs.stride + group * kGroupPairs + simt::thread_x() % 4;
        uint32_t b[kAhead][2] = {};
        SIMT_UNROLL
        for (int i = 0; i < kAhead; ++i) {
            if (i >= num_there) continue;
            b[i][0] = inputs.data[place + i * kGroupPairs];
            b[i][1] = inputs.data[place + i * kGroupPairs + 4];
        }
        SIMT_UNROLL
        for (int i = 0; i < kAhead; ++i) {
            if (i < count) simt::mma(weights.of_group[i], b[i][0], b[i][1], acc);
        }
    }
};
struct TensorMatvec8 : TensorMatvecOf<false> {};
struct TensorNormMatvec4 : TensorMatvecOf<true> {};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
