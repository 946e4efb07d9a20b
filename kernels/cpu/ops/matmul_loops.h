// kernels/cpu/ops/matmul_loops.h: owns the implementation of PanelArgs for one kind of lanes
// (kernels/cpu/ops/lanes_*.h). Included inside the target.
//
// Many rows are blocked by chunks of NUMERICS N3: a panel's chunk (32 KiB) stays in the L1 cache while all rows pass
// over it. Few rows pass over all chunks at once, and prefetch the next weights while they compute. Where a pair takes
// two fma, more rows than a register tile holds are multiplied in bands (kernels/cpu/ops/band_loops.h).
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/ops/cpu_ops.h"
#include "reference/numerics/constants.h"

namespace verbatim::cpu {
namespace {

constexpr int64_t kLineBytes = 64;  // of a cache line
constexpr int64_t kFetchRows = 32;  // with more rows, computing takes longer than loading

// Prefetch distances of a single pass, into L1 and into L2. Of 512 to 4096 and 2 K to 32 K bytes these were the fastest
// on Emerald Rapids (docs/kernels.md).
constexpr int64_t kPrefetchL1Bytes = 2 << 10;
constexpr int64_t kPrefetchL2Bytes = 8 << 10;

// Fast profile: few rows add all of K as one chunk.
template <typename Lanes>
struct FreeOrder : Lanes {
    static constexpr bool kFreeOrder = true;
};
template <typename Lanes>
constexpr bool has_free_order() {
    if constexpr (requires { Lanes::kFreeOrder; }) return Lanes::kFreeOrder;
    return false;
}

// The panel's weight type, and its conversion to words of pairs.
template <typename Lanes>
struct Bf16Weights : Lanes {
    using Weight = Pair;
    static typename Lanes::Words load_weights(const Pair* panel) { return Lanes::load_words(panel); }
    static const Pair* panel_of(const PanelArgs& args) { return args.panel; }
};
template <typename Lanes>
struct Int8Weights : Lanes {
    using Weight = Int8Pair;
    static typename Lanes::Words load_weights(const Int8Pair* panel) { return Lanes::widen(panel); }
    static const Int8Pair* panel_of(const PanelArgs& args) { return args.int8_panel; }
};

// A pair of binary32 weights per lane: a vector of evens and one of odds.
struct FloatPair {
    float halves[2];
};
template <typename Lanes>
struct FloatWeights : Lanes {
    using Weight = FloatPair;
    using Element = float;
    static constexpr int64_t kPerPair = 2;
    using Floats = typename Lanes::Floats;
    struct Words {
        Floats even, odd;
    };
    static Words load_weights(const FloatPair* panel) {
        const float* floats = panel->halves;
        return {Lanes::load(floats), Lanes::load(floats + Lanes::kCount)};
    }
    template <int num, int vectors>
    static inline __attribute__((always_inline)) void dot_pair(const float* a, int64_t stride,
                                                               const Words (&w)[vectors], Floats (&acc)[num][vectors]) {
        for (int r = 0; r < num; ++r) {
            const Floats odd = Lanes::broadcast(a[r * stride + 1]);
            for (int v = 0; v < vectors; ++v) acc[r][v] = Lanes::fma(odd, w[v].odd, acc[r][v]);
        }
        for (int r = 0; r < num; ++r) {
            const Floats even = Lanes::broadcast(a[r * stride]);
            for (int v = 0; v < vectors; ++v) acc[r][v] = Lanes::fma(even, w[v].even, acc[r][v]);
        }
    }
};

// The form of rows that the lanes read.
template <typename Lanes>
const typename Lanes::Element* elements_of(const RoundedRows& rows) {
    if constexpr (Lanes::kPerPair == 1) return rows.pairs;
    if constexpr (Lanes::kPerPair == 2) return rows.floats;
}

template <typename Lanes>
constexpr int64_t kLineWeights = kLineBytes / int64_t{sizeof(typename Lanes::Weight)};

// Dot products of some rows and some outputs of a panel over some pairs of K.
template <typename Lanes>
struct ChunkArgs {
    const typename Lanes::Element* a = nullptr;     // the first row's first pair
    int64_t stride = 0;                             // elements between rows
    const typename Lanes::Weight* panel = nullptr;  // the first pair, the first output
    int64_t count = 0;                              // pairs
    int64_t chunk_pairs = 0;                        // pairs per chunk: the total grows after each
    const typename Lanes::Weight* fetch = nullptr;  // what to prefetch meanwhile
    int64_t fetch_step = 0;                         // weights per pair
    bool reads_ahead = false;  // software prefetch of the pairs ahead: kPrefetchL1Bytes and kPrefetchL2Bytes
    float* out = nullptr;      // the first row's total, first output
    int64_t out_stride = 0;
    bool first = false;           // the panel's first chunk: the total is +0, and +0 + acc is acc, which cannot be -0
    const float* bias = nullptr;  // added at the end, or null
};

template <typename Lanes>
inline void prefetch_ahead(const typename Lanes::Weight* pair) {
    const auto* bytes = reinterpret_cast<const char*>(pair);
    for (int64_t i = 0; i < kPanelOutputs * int64_t{sizeof(*pair)}; i += kLineBytes) {
        __builtin_prefetch(bytes + kPrefetchL2Bytes + i, 0, 2);
        __builtin_prefetch(bytes + kPrefetchL1Bytes + i, 0, 3);
    }
}

// Vectors per register tile: a single row takes all outputs of a panel.
template <typename Lanes, int num>
constexpr int kVectorsOf = num == 1 ? int{kPanelOutputs / Lanes::kCount} : Lanes::kVectors;

// One pair of some rows. A single row loads its vectors one by one: all at once would leave no registers for the sums.
template <typename Lanes, int num, int vectors>
inline __attribute__((always_inline)) void add_pair(const ChunkArgs<Lanes>& args, int64_t j,
                                                    typename Lanes::Floats (&acc)[num][vectors]) {
    const auto* a = args.a + j * Lanes::kPerPair;
    const auto* panel = args.panel + j * kPanelOutputs;
    if constexpr (num == 1) {
        for (int v = 0; v < vectors; ++v) {
            const typename Lanes::Words w[1] = {Lanes::load_weights(panel + v * Lanes::kCount)};
            typename Lanes::Floats sum[1][1] = {{acc[0][v]}};
            Lanes::template dot_pair<1, 1>(a, args.stride, w, sum);
            acc[0][v] = sum[0][0];
        }
    } else {
        typename Lanes::Words w[vectors];
        for (int v = 0; v < vectors; ++v) w[v] = Lanes::load_weights(panel + v * Lanes::kCount);
        Lanes::template dot_pair<num, vectors>(a, args.stride, w, acc);
    }
}

// The chunk of pairs from `first` on.
template <typename Lanes, int num>
inline void add_chunk(const ChunkArgs<Lanes>& args, int64_t first, int64_t count,
                      typename Lanes::Floats (&acc)[num][kVectorsOf<Lanes, num>]) {
    constexpr int kVectors = kVectorsOf<Lanes, num>;
    for (int r = 0; r < num; ++r) {
        for (int v = 0; v < kVectors; ++v) acc[r][v] = Lanes::zero();
    }
    for (int64_t j = first; j < first + count; ++j) {
        for (int64_t i = 0; i < args.fetch_step; i += kLineWeights<Lanes>) {
            __builtin_prefetch(args.fetch + j * args.fetch_step + i, 0, 2);
        }
        if (args.reads_ahead) prefetch_ahead<Lanes>(args.panel + j * kPanelOutputs);
        add_pair<Lanes, num>(args, j, acc);
    }
}

// Adds a chunk's sum to a total of the panel, or initialises it; adds the bias after the last chunk.
template <typename Lanes>
inline __attribute__((always_inline)) void add_to_total(typename Lanes::Floats sum, bool first, const float* bias,
                                                        float* out) {
    if (!first) sum = Lanes::add(Lanes::load(out), sum);
    if (bias != nullptr) sum = Lanes::add(sum, Lanes::load(bias));
    Lanes::store(out, sum);
}

template <typename Lanes, int num>
inline void store_totals(const ChunkArgs<Lanes>& args,
                         const typename Lanes::Floats (&total)[num][kVectorsOf<Lanes, num>]) {
    for (int r = 0; r < num; ++r) {
        for (int v = 0; v < kVectorsOf<Lanes, num>; ++v) {
            const int64_t lane = v * Lanes::kCount;
            add_to_total<Lanes>(total[r][v], args.first, args.bias != nullptr ? args.bias + lane : nullptr,
                                args.out + r * args.out_stride + lane);
        }
    }
}

// All pairs are one chunk: totals stay in registers.
template <typename Lanes, int num>
void one_chunk(const ChunkArgs<Lanes>& args) {
    typename Lanes::Floats acc[num][kVectorsOf<Lanes, num>];
    add_chunk<Lanes, num>(args, 0, args.count, acc);
    store_totals<Lanes, num>(args, acc);
}

// With several chunks, totals are in memory while a chunk is added up. REQUIRES: args.first.
template <typename Lanes, int num>
void several_chunks(const ChunkArgs<Lanes>& args) {
    constexpr int kVectors = kVectorsOf<Lanes, num>;
    typename Lanes::Floats acc[num][kVectors], total[num][kVectors];
    for (auto& lanes : total) std::fill_n(lanes, kVectors, Lanes::zero());
    for (int64_t first = 0; first < args.count; first += args.chunk_pairs) {
        add_chunk<Lanes, num>(args, first, std::min(args.chunk_pairs, args.count - first), acc);
        for (int r = 0; r < num; ++r) {
            for (int v = 0; v < kVectors; ++v) total[r][v] = Lanes::add(total[r][v], acc[r][v]);
        }
    }
    store_totals<Lanes, num>(args, total);
}

// A table of the kernels for each number of rows from 1 on.
template <typename Lanes>
struct ChunkKernels {
    using Kernel = void (*)(const ChunkArgs<Lanes>&);
    static constexpr int kFive = std::min(5, Lanes::kRows);
    static constexpr int kSix = std::min(6, Lanes::kRows);
    static constexpr Kernel kOne[] = {nullptr,
                                      one_chunk<Lanes, 1>,
                                      one_chunk<Lanes, 2>,
                                      one_chunk<Lanes, 3>,
                                      one_chunk<Lanes, 4>,
                                      one_chunk<Lanes, kFive>,
                                      one_chunk<Lanes, kSix>};
    static constexpr Kernel kSeveral[] = {nullptr,
                                          several_chunks<Lanes, 1>,
                                          several_chunks<Lanes, 2>,
                                          several_chunks<Lanes, 3>,
                                          several_chunks<Lanes, 4>,
                                          several_chunks<Lanes, kFive>,
                                          several_chunks<Lanes, kSix>};
};

// All rows over the same pairs. If this takes several passes, each prefetches its part of the next chunk. That may lie
// beyond the panel, in the next panel or at an address that a prefetch ignores. Measured (docs/kernels.md): 16 rows
// gain a quarter. Whether a single pass gains from software prefetch depends on the processor.
template <typename Lanes>
void add_rows(const PanelArgs& args, ChunkArgs<Lanes> chunk) {
    const auto* a = chunk.a;
    const auto* kernels = chunk.count > chunk.chunk_pairs ? ChunkKernels<Lanes>::kSeveral : ChunkKernels<Lanes>::kOne;
    const auto* panel = chunk.panel;
    const float* bias = chunk.bias;
    constexpr int64_t kLanes = int64_t{Lanes::kVectors} * Lanes::kCount;
    const int64_t tile_passes = kPanelOutputs / kLanes;
    const int64_t rest = args.rows.num_rows % Lanes::kRows;
    const int64_t num_passes = args.rows.num_rows / Lanes::kRows * tile_passes + (rest > 1 ? tile_passes : rest);
    const int64_t lines_per_pair = (kPanelOutputs / kLineWeights<Lanes> + num_passes - 1) / num_passes;
    if (num_passes > 1 && args.rows.num_rows <= kFetchRows) chunk.fetch_step = lines_per_pair * kLineWeights<Lanes>;
    chunk.fetch = panel + chunk.count * kPanelOutputs;
    chunk.reads_ahead = args.reads_ahead && num_passes == 1;
    for (int64_t r = 0; r < args.rows.num_rows; r += Lanes::kRows) {
        const int64_t num = std::min<int64_t>(Lanes::kRows, args.rows.num_rows - r);
        for (int64_t lane = 0; lane < kPanelOutputs; lane += num == 1 ? kPanelOutputs : kLanes) {
            chunk.a = a + r * chunk.stride;
            chunk.panel = panel + lane;
            chunk.out = args.out + r * args.out_stride + lane;
            chunk.bias = bias != nullptr ? bias + lane : nullptr;
            kernels[num](chunk);
            chunk.fetch += chunk.count * chunk.fetch_step;
        }
    }
}

template <typename Lanes>
void panel_of(const PanelArgs& args) {
    constexpr int64_t kChunkPairs = reference::kDotChunk / 2;
    const bool few = args.rows.num_rows <= kFetchRows;
    const bool free_order = few && has_free_order<Lanes>();
    const int64_t pairs_at_once = few ? args.rows.num_pairs : kChunkPairs;
    for (int64_t first = 0; first < args.rows.num_pairs; first += pairs_at_once) {
        ChunkArgs<Lanes> chunk;
        chunk.a = elements_of<Lanes>(args.rows) + first * Lanes::kPerPair;
        chunk.stride = args.rows.num_pairs * Lanes::kPerPair;
        chunk.panel = Lanes::panel_of(args) + first * kPanelOutputs;
        chunk.count = std::min(pairs_at_once, args.rows.num_pairs - first);
        chunk.chunk_pairs = free_order ? chunk.count : kChunkPairs;
        chunk.out_stride = args.out_stride;
        chunk.first = first == 0;
        chunk.bias = first + chunk.count == args.rows.num_pairs ? args.bias : nullptr;
        add_rows(args, chunk);
    }
}

// `Weights`: FloatWeights or Bf16Weights.
template <typename Weights>
void chunk_rows_of(const ChunkRowsArgs<typename Weights::Element>& args) {
    ChunkArgs<Weights> chunk;
    chunk.a = args.x;
    chunk.stride = args.stride;
    chunk.panel = reinterpret_cast<const typename Weights::Weight*>(args.weights);
    chunk.count = args.num_pairs;
    chunk.chunk_pairs = args.num_pairs;
    chunk.out_stride = kPanelOutputs;
    add_rows(PanelArgs{.rows = {.num_rows = args.num_rows}, .out = args.out}, chunk);
}

}  // namespace
}  // namespace verbatim::cpu
