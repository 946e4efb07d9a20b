// kernels/cpu/ops/int8_loops.h: owns the products of exact.int8 (kernels/cpu/ops/int8_layout.h) for one kind of integer
// lanes, which are outputs (kernels/cpu/ops/*_int8.cc). Included inside the target.
//
// A chunk of K of the panel stays in the cache while the rows pass over it, some rows by some vectors of outputs at a
// time. quants + zero has no sign; Σ (quant + zero) · a − zero · Σ a is the sum of the contract, and the second part is
// what an accumulator begins with. Nothing is prefetched: on Zen 4 that made one row of Q8_0 slower by half.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/ops/int8_layout.h"
#include "reference/numerics/constants.h"

namespace verbatim::cpu {
namespace {

constexpr int64_t kChunkRuns = reference::kDotChunk / kInt8SumColumns;

// A part of a panel: columns of one chunk.
struct Int8Chunk {
    const std::byte* blocks = nullptr;
    int64_t first_k = 0;
    int64_t num_blocks = 0;
};

// What the rows' sums add to the products of a chunk's runs.
template <int rows>
struct RunSums {
    int32_t begin[rows][kChunkRuns];      // −zero · Σ a, by run
    int32_t pairs[rows][kChunkRuns / 2];  // Σ a of two neighbouring runs as int16, for integer minima
    float sums[rows][kChunkRuns];         // Σ a by run, for a block's minimum
};

template <Int8Kind kind, int rows>
inline __attribute__((always_inline)) void sum_runs(const Int8PanelArgs& args, const Int8Chunk& chunk,
                                                    const std::byte* row, int64_t stride, int32_t zero,
                                                    RunSums<rows>& out) {
    constexpr int64_t kSums = kind.run_weights / kInt8SumColumns;
    const Int8RowPlaces places{args.num_k};
    const int64_t num_runs = chunk.num_blocks * args.layout.num_runs();
    for (int r = 0; r < rows; ++r) {
        const auto* sums =
            reinterpret_cast<const int32_t*>(row + r * stride + places.sums()) + chunk.first_k / kInt8SumColumns;
        int32_t run_sums[kChunkRuns];
        for (int64_t j = 0; j < num_runs; ++j) run_sums[j] = kSums == 1 ? sums[j] : sums[2 * j] + sums[2 * j + 1];
        for (int64_t j = 0; j < num_runs; ++j) out.begin[r][j] = -zero * run_sums[j];
        if constexpr (kind.has_minima && kind.has_scales) {
            for (int64_t j = 0; j < num_runs / 2; ++j)
                out.pairs[r][j] = static_cast<int32_t>((static_cast<uint32_t>(run_sums[2 * j]) & 0xFFFFU) |
                                                       static_cast<uint32_t>(run_sums[2 * j + 1]) << 16);
        } else if constexpr (kind.has_minima) {
            for (int64_t j = 0; j < num_runs; ++j) out.sums[r][j] = static_cast<float>(run_sums[j]);
        }
    }
}

// dot[r][v] += the products of a run; `quants` and `a` point to its first ones.
template <typename Lanes, Int8Kind kind, int rows, int vectors>
inline __attribute__((always_inline)) void add_run_products(const std::byte* const (&quants)[vectors],
                                                            const std::byte* a, int64_t stride,
                                                            typename Lanes::Ints (&dot)[rows][vectors]) {
    constexpr bool kNibbles = kind.quants == QuantKind::kNibbles;
    constexpr int kWords = kind.run_weights / (kNibbles ? 8 : 4);
    const auto multiply = [&](int64_t k, const typename Lanes::Ints(&w)[vectors]) __attribute__((always_inline)) {
        for (int r = 0; r < rows; ++r) {
            const typename Lanes::Ints word = Lanes::broadcast_word(a + r * stride + k);
            for (int v = 0; v < vectors; ++v) dot[r][v] = Lanes::template dot<kind.quants>(dot[r][v], w[v], word);
        }
    };
    for (int j = 0; j < kWords; ++j) {
        typename Lanes::Ints w[vectors];
        for (int v = 0; v < vectors; ++v) {
            w[v] = Lanes::load(quants[v] + j * Int8Layout::kWordBytes);
        }
        if constexpr (kNibbles) {
            typename Lanes::Ints half[vectors];
            for (int v = 0; v < vectors; ++v) half[v] = Lanes::low_nibbles(w[v]);
            multiply(8 * j, half);
            for (int v = 0; v < vectors; ++v) half[v] = Lanes::high_nibbles(w[v]);
            multiply(8 * j + 4, half);
        } else {
            multiply(4 * j, w);
        }
    }
}

// The scales of a block's outputs from `lane` on.
template <typename Lanes, Int8Kind kind>
inline __attribute__((always_inline)) typename Lanes::Floats scales_of(const std::byte* scales, int64_t lane) {
    if constexpr (kind.has_wide_scale) return Lanes::load_floats(scales + 4 * lane);
    return Lanes::halves(scales + 2 * lane);
}

// acc[r][v] += the block of some rows by some vectors of outputs from `lane` on.
template <typename Lanes, Int8Kind kind, int rows, int vectors>
inline __attribute__((always_inline)) void add_block(const Int8PanelArgs& args, const Int8Chunk& chunk, int64_t block,
                                                     int64_t lane, const std::byte* row, int64_t stride,
                                                     const RunSums<rows>& sums,
                                                     typename Lanes::Floats (&acc)[rows][vectors]) {
    using Ints = typename Lanes::Ints;
    const Int8Layout& layout = args.layout;
    const std::byte* of = chunk.blocks + block * layout.num_bytes();
    constexpr int64_t kRuns = kind.has_scales ? reference::kDotChunk / kind.run_weights : 1;
    const std::byte* quants[vectors];
    for (int v = 0; v < vectors; ++v) quants[v] = of + 4 * (lane + v * Lanes::kCount);
    Ints products[rows][vectors];
    for (auto& of_row : products) std::fill_n(of_row, vectors, Lanes::zero());
    for (int64_t j = 0; j < kRuns; ++j) {
        Ints dot[rows][vectors];
        for (int r = 0; r < rows; ++r)
            for (int v = 0; v < vectors; ++v)
                dot[r][v] = Lanes::template has_zero<kind.quants>() ? Lanes::broadcast(sums.begin[r][block * kRuns + j])
                                                                    : Lanes::zero();
        const std::byte* a = row + chunk.first_k + block * layout.weights + j * kind.run_weights;
        add_run_products<Lanes, kind, rows, vectors>(quants, a, stride, dot);
        for (int v = 0; v < vectors; ++v) {
            quants[v] += layout.run_bytes();
            if constexpr (kind.has_scales) {
                const Ints scales =
                    Lanes::widen(of + j * layout.run_bytes() + layout.scales_offset() + lane + v * Lanes::kCount);
                for (int r = 0; r < rows; ++r)
                    products[r][v] = Lanes::add(products[r][v], Lanes::mul(dot[r][v], scales));
            } else {
                for (int r = 0; r < rows; ++r) products[r][v] = dot[r][v];
            }
        }
    }
    const Int8RowPlaces places{args.num_k};
    const int64_t scale = places.scales() + (chunk.first_k / layout.weights + block) * int64_t{sizeof(float)};
    for (int v = 0; v < vectors; ++v) {
        const auto factor = scales_of<Lanes, kind>(of + layout.scale_offset(), lane + v * Lanes::kCount);
        for (int r = 0; r < rows; ++r)
            acc[r][v] = Lanes::fma(Lanes::mul_floats(factor, Lanes::broadcast_float(row + r * stride + scale)),
                                   Lanes::to_floats(products[r][v]), acc[r][v]);
        if constexpr (kind.has_minima) {
            const auto offset =
                Lanes::halves(of + layout.scale_offset() + Int8Layout::kHalfBytes + 2 * (lane + v * Lanes::kCount));
            Ints pairs[kRuns / 2 + 1];
            if constexpr (kind.has_scales)
                for (int64_t j = 0; j < kRuns / 2; ++j)
                    pairs[j] = Lanes::widen_pairs(of + layout.minima_offset() + 2 * j * kPanelOutputs +
                                                  2 * (lane + v * Lanes::kCount));
            for (int r = 0; r < rows; ++r) {
                typename Lanes::Floats sum;
                if constexpr (kind.has_scales) {
                    Ints total = Lanes::zero();
                    for (int64_t j = 0; j < kRuns / 2; ++j)
                        total = Lanes::add(total, Lanes::dot_pairs(pairs[j], Lanes::broadcast(sums.pairs[r][j])));
                    sum = Lanes::to_floats(total);
                } else {
                    sum = Lanes::splat(sums.sums[r][block]);
                }
                acc[r][v] = Lanes::fma(Lanes::mul_floats(offset, Lanes::broadcast_float(row + r * stride + scale)), sum,
                                       acc[r][v]);
            }
        }
    }
}

// out[r] += a chunk's products.
template <typename Lanes, Int8Kind kind, int rows>
void int8_rows(const Int8PanelArgs& args, const Int8Chunk& chunk, int64_t first_row) {
    constexpr int kVectors = std::min(4, Lanes::kAccumulators / rows);
    const int64_t stride = Int8RowPlaces{args.num_k}.stride();
    const std::byte* row = args.rows + first_row * stride;
    RunSums<rows> sums;
    sum_runs<kind, rows>(args, chunk, row, stride, args.layout.zero, sums);
    for (int64_t lane = 0; lane < kPanelOutputs; lane += int64_t{kVectors} * Lanes::kCount) {
        typename Lanes::Floats acc[rows][kVectors];
        for (auto& of_row : acc) std::fill_n(of_row, kVectors, Lanes::zero_floats());
        for (int64_t block = 0; block < chunk.num_blocks; ++block)
            add_block<Lanes, kind, rows, kVectors>(args, chunk, block, lane, row, stride, sums, acc);
        for (int r = 0; r < rows; ++r)
            for (int v = 0; v < kVectors; ++v)
                Lanes::add_to(args.out + (first_row + r) * kPanelOutputs + lane + v * Lanes::kCount, acc[r][v]);
    }
}

template <typename Lanes, Int8Kind kind>
void int8_panel_in(const Int8PanelArgs& args) {
    std::fill_n(args.out, args.num_rows * kPanelOutputs, 0.0F);
    const int64_t step = reference::kDotChunk / args.layout.weights;
    const int64_t num_blocks = args.num_k / args.layout.weights;
    for (int64_t block = 0; block < num_blocks; block += step) {
        const Int8Chunk chunk{.blocks = args.panel + block * args.layout.num_bytes(),
                              .first_k = block * args.layout.weights,
                              .num_blocks = std::min(step, num_blocks - block)};
        int64_t row = 0;
        for (int64_t left = args.num_rows; left > 0; left = args.num_rows - row) {
            const auto take = [&](auto kernel, int64_t count) {
                kernel(args, chunk, row);
                row += count;
            };
            if (Lanes::kMaxRows >= 8 && left >= 8)
                take(int8_rows<Lanes, kind, std::min(8, Lanes::kMaxRows)>, std::min(8, Lanes::kMaxRows));
            else if (left >= 4)
                take(int8_rows<Lanes, kind, 4>, 4);
            else if (left >= 2)
                take(int8_rows<Lanes, kind, 2>, 2);
            else
                take(int8_rows<Lanes, kind, 1>, 1);
        }
    }
}

template <typename Lanes, Int8Kind kind>
constexpr std::pair<Int8Kind, void (*)(const Int8PanelArgs&)> int8_kernel() {
    return {kind, int8_panel_in<Lanes, kind>};
}

template <typename Lanes>
void int8_panel_of(const Int8PanelArgs& args) {
    static constexpr std::array kKernels = {
        int8_kernel<Lanes, Int8Kind{QuantKind::kWideBytes, 32, false, false}>(),        // Q8_0, IQ4_NL
        int8_kernel<Lanes, Int8Kind{QuantKind::kNibbles, 32, false, false}>(),          // Q4_0
        int8_kernel<Lanes, Int8Kind{QuantKind::kNibbles, 32, false, true}>(),           // Q4_1
        int8_kernel<Lanes, Int8Kind{QuantKind::kBytes, 32, false, false}>(),            // Q5_0
        int8_kernel<Lanes, Int8Kind{QuantKind::kBytes, 32, false, true}>(),             // Q5_1
        int8_kernel<Lanes, Int8Kind{QuantKind::kNibbles, 16, true, true}>(),            // Q2_K
        int8_kernel<Lanes, Int8Kind{QuantKind::kNibbles, 16, true, false}>(),           // Q3_K
        int8_kernel<Lanes, Int8Kind{QuantKind::kNibbles, 32, true, true}>(),            // Q4_K
        int8_kernel<Lanes, Int8Kind{QuantKind::kBytes, 32, true, true}>(),              // Q5_K
        int8_kernel<Lanes, Int8Kind{QuantKind::kBytes, 16, true, false}>(),             // Q6_K
        int8_kernel<Lanes, Int8Kind{QuantKind::kWideBytes, 32, true, false}>(),         // IQ4_XS
        int8_kernel<Lanes, Int8Kind{QuantKind::kWideBytes, 32, false, false, true}>(),  // INT8
        int8_kernel<Lanes, Int8Kind{QuantKind::kNibbles, 32, false, false, true}>(),    // INT4
        int8_kernel<Lanes, Int8Kind{QuantKind::kBytes, 32, false, false, true}>(),      // INT4_ZERO
    };
    for (const auto& [kind, kernel] : kKernels)
        if (kind == args.layout.kind) return kernel(args);
}

}  // namespace
}  // namespace verbatim::cpu
