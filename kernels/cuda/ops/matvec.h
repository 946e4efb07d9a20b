// kernels/cuda/ops/matvec.h: owns exact matmuls of a few rows, which are bound by reading the weights, fused with the
// operations before and after (ops/matvec_parts.h).
#pragma once

#include "kernels/cuda/ops/matmul.h"
#include "kernels/cuda/ops/matvec_parts.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

inline constexpr int kMatvecThreads = 128;

struct MatvecLane {
    simt::Global<const uint32_t> weight;
    int64_t quad;  // of outputs
};

// What a chunk of N3 leaves for each output: a sum, added to those of the chunks before it.
struct SumsOfChunks {
    static constexpr int64_t kChunkPairs = cuda::kChunkPairs;
    static constexpr int kLeft = 1;  // numbers of each output
    template <typename Inputs, typename Sums>
    SIMT_FUNCTION static void begin(const MatvecParameters&, const MatvecLane&, const Inputs&, int64_t, Sums&) {}
    // sums: [count][kLeft][num_sums]. is_last: there are no further chunks.
    SIMT_FUNCTION static void add_up(const simt::Shared<float>& sums, int count, int num_sums, bool is_first, bool,
                                     const simt::Shared<float>& totals) {
        MatvecParts::add_in_order(sums, count, num_sums, is_first, totals);
    }
};

// What a thread adds up over a chunk, kRows rows by 4 outputs: dot products of bf16 inputs, in N3's order.
template <int kRows, typename Span>
struct PairProducts : SumsOfChunks {
    using Sums = float[kRows][4];
    // Adds the products of a span that begins at first_pair.
    template <typename Inputs>
    SIMT_FUNCTION static void add(const simt::Four<uint32_t> (&rows)[Span::kRows], const Inputs& inputs,
                                  const MatvecParameters& of, int64_t first_pair, Sums& acc) {
        const auto weights = Span::open(rows, first_pair);
        simt::Four<uint32_t> x[kRows][Span::kPairs / 4] = {};
        SIMT_UNROLL
        for (int r = 0; r < kRows; ++r) {
            SIMT_UNROLL
            for (int i = 0; i < Span::kPairs / 4; ++i) {
                if (r >= of.num_rows || first_pair + 4 * i >= of.row_pairs) continue;
                x[r][i] = simt::load4(inputs, r * of.row_pairs + first_pair + 4 * i);
            }
        }
        SIMT_UNROLL
        for (int i = 0; i < Span::kPairs; ++i) {
            const PairWeights w = weights.pair(i);
            SIMT_UNROLL
            for (int r = 0; r < kRows; ++r) {
                const uint32_t pair = x[r][i / 4].values[i % 4];
                SIMT_UNROLL
                for (int k = 0; k < 4; ++k) {  // N3: a pair's odd product first
                    acc[r][k] = reference::fma_f32(odd_half(pair), w.odd[k], acc[r][k]);
                    acc[r][k] = reference::fma_f32(even_half(pair), w.even[k], acc[r][k]);
                }
            }
        }
    }
    SIMT_FUNCTION static float left(const Sums& acc, int, int r, int k) { return acc[r][k]; }
};

// A thread computes 4 outputs over one chunk, with the weights of a span (ops/weight_spans.h) in flight at once. CTAs
// of (quads of outputs, chunks), kMatvecThreads at most; chunk sums are added in order. With a norm, every CTA computes
// the inputs itself while its first weights are in flight.
template <int kRows, bool kNormed, typename Span, typename Products = PairProducts<kRows, Span>>
struct MatvecOf : MatvecParts {
    static constexpr int kAhead = Span::kPairs;
    static constexpr int kThreads = kMatvecThreads;
    static constexpr int kResidentBlocks =
        kRows >= 4 ? 2 : 3;  // limits registers such that the compiler issues all loads before the first use
    // Weights, which no kernel writes, are prefetched while earlier kernels end
    static constexpr bool kDependent = true;
    static constexpr int kInputWords = kRows * static_cast<int>(kMatvecNormWidth / 2);
    static constexpr int kSharedBytes = kNormed ? kInputWords * 4 : 0;
    struct Weights {
        simt::Four<uint32_t> rows[Span::kRows];
    };
    static constexpr int64_t kChunkPairs = Products::kChunkPairs;
    static constexpr int kLeft = Products::kLeft;

    SIMT_FUNCTION void operator()() const {
        SIMT_SHARED(float, sums, kMatvecThreads* kRows * 4 * kLeft);
        SIMT_SHARED(float, totals, kMatvecThreads* kRows * 4);  // [kRows][outputs]
        const MatvecLane lane = this_lane();
        const Weights weights = fetch(lane, int64_t{simt::thread_y()} * kChunkPairs);
        simt::wait_previous();
        simt::release_next();
        if constexpr (kNormed) {
            SIMT_LARGE_SHARED(uint32_t, inputs, kInputWords);
            SIMT_SHARED(float, tile, kMatvecNormWidth);
            SIMT_SHARED(float, partials, kPartials);
            take_norm(tile, partials, inputs, row_pairs);
            add_chunks(lane, weights, inputs, sums, totals);
        } else {
            add_chunks(lane, weights, pairs, sums, totals);
        }
        finish(totals, simt::threads_x() * 4);
    }

    SIMT_FUNCTION MatvecLane this_lane() const {
        if (end != MatvecEnd::kSwiglu) {
            return {one_of(block_matrix(), first.weight, second.weight, third.weight),
                    int64_t{block_of_matrix()} * simt::threads_x() + simt::thread_x()};
        }
        const int quads = simt::threads_x() / 2;
        return {one_of(simt::thread_x() / quads, first.weight, second.weight, third.weight),
                int64_t{simt::block_x()} * quads + simt::thread_x() % quads};
    }

    // Loads a span of a chunk; +0 outside the matrix.
    SIMT_FUNCTION Weights fetch(const MatvecLane& lane, int64_t first_pair) const {
        Weights weights = {};
        const int64_t first_row = lane.quad / kPanelQuads * Span::panel_rows(num_pairs);
        SIMT_UNROLL
        for (int i = 0; i < Span::kRows; ++i) {
            const int64_t place = (first_row + Span::panel_row(first_pair, i)) * kPanel + lane.quad % kPanelQuads * 4;
            if (Span::has(first_pair, i, num_pairs)) weights.rows[i] = simt::load4(lane.weight, place);
        }
        return weights;
    }

    // Computes the sums of every chunk and adds them in order.
    template <typename Inputs>
    SIMT_FUNCTION void add_chunks(const MatvecLane& lane, Weights weights, const Inputs& inputs,
                                  const simt::Shared<float>& sums, const simt::Shared<float>& totals) const {
        const int num_sums = simt::threads_x() * 4 * kRows;  // per chunk
        const int64_t groups = simt::threads_y();
        for (int64_t turn = 0; turn < num_pairs; turn += groups * kChunkPairs) {
            leave_chunk(lane, turn + int64_t{simt::thread_y()} * kChunkPairs, weights, inputs, sums);
            const int64_t left = (num_pairs - turn + kChunkPairs - 1) / kChunkPairs;
            simt::sync_block();
            Products::add_up(sums, static_cast<int>(left < groups ? left : groups), num_sums, turn == 0, left <= groups,
                             totals);
            simt::sync_block();
        }
    }
    // Stores what the chunk that begins at pair `begin` leaves, if it exists: [chunks][kLeft][kRows][outputs].
    // `weights` holds its first pairs, and on return those of the thread's next chunk.
    template <typename Inputs>
    SIMT_FUNCTION void leave_chunk(const MatvecLane& lane, int64_t begin, Weights& weights, const Inputs& inputs,
                                   const simt::Shared<float>& sums) const {
        if (begin >= num_pairs) return;
        const int64_t end_pair = begin + kChunkPairs < num_pairs ? begin + kChunkPairs : num_pairs;
        typename Products::Sums acc = {};
        Products::begin(*this, lane, inputs, begin, acc);
        for (int64_t pair = begin; pair < end_pair; pair += kAhead) {
            Products::add(weights.rows, inputs, *this, pair, acc);
            const int64_t next = pair + kAhead;
            weights = fetch(lane, next < end_pair ? next : begin + int64_t{simt::threads_y()} * kChunkPairs);
        }
        SIMT_UNROLL
        for (int part = 0; part < kLeft; ++part) {
            SIMT_UNROLL
            for (int r = 0; r < kRows; ++r) {
                const int row = (simt::thread_y() * kLeft + part) * kRows + r;
                simt::store4(sums, (row * simt::threads_x() + simt::thread_x()) * 4,
                             {{Products::left(acc, part, r, 0), Products::left(acc, part, r, 1),
                               Products::left(acc, part, r, 2), Products::left(acc, part, r, 3)}});
            }
        }
    }
};
struct Matvec1 : MatvecOf<1, false, PairSpan<16>> {};
struct Matvec2 : MatvecOf<2, false, PairSpan<8>> {};
struct Matvec4 : MatvecOf<4, false, PairSpan<8>> {};
struct NormMatvec1 : MatvecOf<1, true, PairSpan<16>> {};
struct NormMatvec2 : MatvecOf<2, true, PairSpan<8>> {};
struct NormMatvec4 : MatvecOf<4, true, PairSpan<8>> {};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
