// kernels/cpu/ops/run_loops.h: owns the products with weights in runs (kernels/cpu/ops/run_layout.h) for one kind of
// lanes (kernels/cpu/ops/lanes_*.h). Included inside the target.
//
// A few rows multiply a weight in the register in which it was dequantised. For more rows a chunk of the panel becomes
// binary32 in the cache once (FloatChunkArgs). Both prefetch the panel's stream: without it, runs of 36 lines (Q8_0)
// were read at half the speed of runs of 20 lines.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/ops/cpu_ops.h"
#include "kernels/cpu/ops/matmul_loops.h"
#include "reference/numerics/constants.h"

namespace verbatim::cpu {
namespace {

constexpr int64_t kRunPrefetchBytes = 4 << 10;

// The values of neighbouring e4m3 numbers, none of them NaN. Their exponents are 120 less than binary32's, subnormal
// numbers' too.
template <typename Lanes>
inline __attribute__((always_inline)) typename Lanes::Floats e4m3_values(const std::byte* numbers) {
    const typename Lanes::Bits bits = Lanes::load_bytes(numbers);
    return Lanes::mul((typename Lanes::Floats)((bits & 0x7FU) << 20 | (bits & 0x80U) << 24),
                      Lanes::broadcast(0x1p120F));
}

// One vector of outputs of a run.
template <typename Lanes, RunKind kind>
struct RunLanes {
    using Floats = typename Lanes::Floats;
    static constexpr bool kHasMinima = kind == RunKind::kNibblesAndMinima;
    static constexpr int64_t kPairBytes = has_bytes(kind) ? 2 * kPanelOutputs : kPanelOutputs;

    const float* scales;      // [64] and, with minima, these after them
    const std::byte* quants;  // of the vector's first output

    RunLanes(const RunLayout& layout, const std::byte* run, int64_t lane)
        : scales(reinterpret_cast<const float*>(run) + lane), quants(run + layout.quants_offset() + lane) {}

    // The pair that comes kRunPrefetchBytes later in the panel's stream; beyond the panel it is ignored.
    inline __attribute__((always_inline)) void prefetch(int64_t j) const {
        const std::byte* pair = quants + j * kPairBytes + kRunPrefetchBytes;
        for (int64_t i = 0; i < kPairBytes; i += kLineBytes) __builtin_prefetch(pair + i, 0, 3);
    }
    static inline __attribute__((always_inline)) Floats widen(const std::byte* bytes) {
        if constexpr (has_e4m3(kind)) return e4m3_values<Lanes>(bytes);
        return Lanes::widen_bytes(bytes);
    }
    [[nodiscard]] inline __attribute__((always_inline)) Floats value(Floats quant, int v) const {
        if constexpr (kind == RunKind::kBareFloats) return quant;
        const Floats product = Lanes::mul(Lanes::load(scales + v * Lanes::kCount), quant);
        if constexpr (!kHasMinima) return product;
        return Lanes::sub(product, Lanes::load(scales + kPanelOutputs + v * Lanes::kCount));
    }
    [[nodiscard]] inline __attribute__((always_inline)) Floats even(int64_t j, int v,
                                                                    typename Lanes::Nibbles nibbles) const {
        const std::byte* pair = quants + j * kPairBytes + v * Lanes::kCount;
        if constexpr (has_bytes(kind)) return value(widen(pair), v);
        return value(Lanes::low_nibbles(Lanes::load_bytes(pair), nibbles), v);
    }
    [[nodiscard]] inline __attribute__((always_inline)) Floats odd(int64_t j, int v,
                                                                   typename Lanes::Nibbles nibbles) const {
        const std::byte* pair = quants + j * kPairBytes + v * Lanes::kCount;
        if constexpr (has_bytes(kind)) return value(widen(pair + kPanelOutputs), v);
        return value(Lanes::low_nibbles(Lanes::load_bytes(pair) >> 4, nibbles), v);
    }
};

// Adds a run to the sums of `num` rows: per pair the odd element first (N3). A single row multiplies each vector at
// once: all vectors of weights together would leave no registers for the sums.
template <typename Lanes, RunKind kind, int num, int vectors>
inline __attribute__((always_inline)) void add_run(const RunPanelArgs& args, const float* x,
                                                   const RunLanes<Lanes, kind>& run, typename Lanes::Nibbles nibbles,
                                                   typename Lanes::Floats (&acc)[num][vectors]) {
    for (int64_t j = 0; j < args.layout.weights / 2; ++j) {
        const float* a = x + 2 * j;
        run.prefetch(j);
        if constexpr (num == 1) {
            for (int v = 0; v < vectors; ++v) {
                acc[0][v] = Lanes::fma(Lanes::broadcast(a[1]), run.odd(j, v, nibbles), acc[0][v]);
                acc[0][v] = Lanes::fma(Lanes::broadcast(a[0]), run.even(j, v, nibbles), acc[0][v]);
            }
        } else {
            FloatWeights<Lanes> weights;
            typename FloatWeights<Lanes>::Words w[vectors];
            for (int v = 0; v < vectors; ++v) w[v] = {run.even(j, v, nibbles), run.odd(j, v, nibbles)};
            weights.template dot_pair<num, vectors>(a, args.stride, w, acc);
        }
    }
}

template <typename Lanes, RunKind kind, int num>
void run_rows(const RunPanelArgs& args) {
    constexpr int kVectors = kVectorsOf<Lanes, num>;
    const typename Lanes::Nibbles nibbles = Lanes::nibbles(args.layout.first);
    const int64_t run_bytes = args.layout.num_bytes();
    for (int64_t first = 0; first < args.num_k; first += reference::kDotChunk) {
        const int64_t end = std::min(first + reference::kDotChunk, args.num_k);
        for (int64_t lane = 0; lane < kPanelOutputs; lane += int64_t{kVectors} * Lanes::kCount) {
            typename Lanes::Floats acc[num][kVectors];
            for (auto& row : acc) std::fill_n(row, kVectors, Lanes::zero());
            const std::byte* run = args.panel + first / args.layout.weights * run_bytes;
            for (int64_t k = first; k < end; k += args.layout.weights, run += run_bytes)
                add_run<Lanes, kind, num, kVectors>(args, args.x + k, {args.layout, run, lane}, nibbles, acc);
            for (int r = 0; r < num; ++r) {
                float* out = args.out + r * kPanelOutputs + lane;
                for (int v = 0; v < kVectors; ++v)
                    add_to_total<Lanes>(acc[r][v], first == 0, nullptr, out + v * Lanes::kCount);
            }
        }
    }
}

template <typename Lanes, RunKind kind>
void run_panel_in(RunPanelArgs args) {
    constexpr int kFive = std::min(5, Lanes::kRows);
    constexpr int kSix = std::min(6, Lanes::kRows);
    static constexpr void (*kKernels[])(const RunPanelArgs&) = {nullptr,
                                                                run_rows<Lanes, kind, 1>,
                                                                run_rows<Lanes, kind, 2>,
                                                                run_rows<Lanes, kind, 3>,
                                                                run_rows<Lanes, kind, 4>,
                                                                run_rows<Lanes, kind, kFive>,
                                                                run_rows<Lanes, kind, kSix>};
    for (int64_t left = args.num_rows; left > 0; left -= Lanes::kRows) {
        kKernels[std::min<int64_t>(left, Lanes::kRows)](args);
        args.x += Lanes::kRows * args.stride;
        args.out += Lanes::kRows * kPanelOutputs;
    }
}

template <typename Lanes>
void run_panel_of(const RunPanelArgs& args) {
    switch (args.layout.kind) {
        case RunKind::kBytes: return run_panel_in<Lanes, RunKind::kBytes>(args);
        case RunKind::kFloats: return run_panel_in<Lanes, RunKind::kFloats>(args);
        case RunKind::kBareFloats: return run_panel_in<Lanes, RunKind::kBareFloats>(args);
        case RunKind::kNibbles: return run_panel_in<Lanes, RunKind::kNibbles>(args);
        case RunKind::kNibblesAndMinima: return run_panel_in<Lanes, RunKind::kNibblesAndMinima>(args);
    }
}

// Calls store(evens, odds) for the vectors of each pair of columns, in the order of the tile's layout.
template <typename Lanes, RunKind kind, typename Element, typename Store>
inline __attribute__((always_inline)) void for_each_pair(const RunsToTileArgs<Element>& args, const Store& store) {
    const typename Lanes::Nibbles nibbles = Lanes::nibbles(args.layout.first);
    const std::byte* run = args.runs;
    for (int64_t k = 0; k < args.num_k; k += args.layout.weights, run += args.layout.num_bytes()) {
        const RunLanes<Lanes, kind> lanes(args.layout, run, 0);
        for (int64_t j = 0; j < args.layout.weights / 2; ++j) {
            lanes.prefetch(j);
            for (int v = 0; v < kPanelOutputs / Lanes::kCount; ++v)
                store(lanes.even(j, v, nibbles), lanes.odd(j, v, nibbles));
        }
    }
}

template <typename Lanes, RunKind kind>
void run_tile_in(const RunTileArgs& args) {
    using Floats = typename Lanes::Floats;
    float* to = args.tile;
    for_each_pair<Lanes, kind>(
        args, [&](Floats evens, Floats odds) __attribute__((always_inline)) {
            Lanes::store(to, evens);
            Lanes::store(to + Lanes::kCount, odds);
            to += 2 * Lanes::kCount;
        });
}

// Numbers of e4m3 are numbers of bf16.
template <typename Lanes>
void pair_tile_of(const PairTileArgs& args) {
    using Floats = typename Lanes::Floats;
    using Bits = typename Lanes::Bits;
    Pair* to = args.tile;
    for_each_pair<Lanes, RunKind::kBareFloats>(
        args, [&](Floats evens, Floats odds) __attribute__((always_inline)) {
            const Bits pairs = (Bits)evens >> 16 | (Bits)odds;
            std::memcpy(to, &pairs, sizeof(pairs));
            to += Lanes::kCount;
        });
}

template <typename Lanes>
void run_tile_of(const RunTileArgs& args) {
    switch (args.layout.kind) {
        case RunKind::kBytes: return run_tile_in<Lanes, RunKind::kBytes>(args);
        case RunKind::kFloats: return run_tile_in<Lanes, RunKind::kFloats>(args);
        case RunKind::kBareFloats: return run_tile_in<Lanes, RunKind::kBareFloats>(args);
        case RunKind::kNibbles: return run_tile_in<Lanes, RunKind::kNibbles>(args);
        case RunKind::kNibblesAndMinima: return run_tile_in<Lanes, RunKind::kNibblesAndMinima>(args);
    }
}

}  // namespace
}  // namespace verbatim::cpu
