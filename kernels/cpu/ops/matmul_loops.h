// kernels/cpu/ops/matmul_loops.h: PanelArgs for one kind of lanes (kernels/cpu/ops/lanes_*.h). Included inside the target.
//
// Chunk by chunk of NUMERICS N3, so that a chunk of the panel (32 KiB) stays near while all rows pass over it; what the
// rows take longer for than memory does is used to fetch the next chunk.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/ops/cpu_ops.h"
#include "reference/numerics/constants.h"

namespace verbatim::cpu {
namespace {

constexpr int64_t kLineWords = 16;  // of a cache line
constexpr int64_t kFetchRows = 32;  // with more, computing takes longer than memory

// The fast profile's: few rows add all of K in one go.
template <typename Lanes>
struct FreeOrder : Lanes {
    static constexpr bool kFreeOrder = true;
};
template <typename Lanes>
constexpr bool has_free_order() {
    if constexpr (requires { Lanes::kFreeOrder; }) return Lanes::kFreeOrder;
    return false;
}

// The form of rows that the lanes take.
template <typename Lanes>
const typename Lanes::Element* elements_of(const RoundedRows& rows) {
    if constexpr (Lanes::kPerPair == 1) return rows.pairs;
    if constexpr (Lanes::kPerPair == 2) return rows.floats;
}

// A chunk's dot products of some rows and some outputs of a panel.
template <typename Lanes>
struct ChunkArgs {
    const typename Lanes::Element* a = nullptr;  // the first row's first pair
    int64_t stride = 0;                          // elements between rows
    const Pair* panel = nullptr;                 // the chunk's first pair, the first output
    int64_t count = 0;                           // pairs
    const Pair* fetch = nullptr;                 // what to ask memory for meanwhile
    int64_t fetch_step = 0;                      // words of it per pair
    float* out = nullptr;                        // the first row's total, first output
    int64_t out_stride = 0;
    bool first = false;           // of the panel's chunks: the total is +0, and +0 + acc is acc, which cannot be -0
    const float* bias = nullptr;  // added after the last chunk, else null
};

template <typename Lanes, int num>
void add_chunk(const ChunkArgs<Lanes>& args) {
    constexpr int kVectors = Lanes::kVectors;
    typename Lanes::Floats acc[num][kVectors];
    for (int r = 0; r < num; ++r) {
        for (int v = 0; v < kVectors; ++v) acc[r][v] = Lanes::zero();
    }
    for (int64_t j = 0; j < args.count; ++j) {
        typename Lanes::Words w[kVectors];
        for (int v = 0; v < kVectors; ++v) {
            w[v] = Lanes::load_words(args.panel + j * kPanelOutputs + v * Lanes::kCount);
        }
        for (int64_t word = 0; word < args.fetch_step; word += kLineWords) {
            __builtin_prefetch(args.fetch + j * args.fetch_step + word, 0, 2);
        }
        Lanes::template dot_pair<num, kVectors>(args.a + j * Lanes::kPerPair, args.stride, w, acc);
    }
    for (int r = 0; r < num; ++r) {
        for (int v = 0; v < kVectors; ++v) {
            float* out = args.out + r * args.out_stride + v * Lanes::kCount;
            typename Lanes::Floats total = args.first ? acc[r][v] : Lanes::add(Lanes::load(out), acc[r][v]);
            if (args.bias != nullptr) total = Lanes::add(total, Lanes::load(args.bias + v * Lanes::kCount));
            Lanes::store(out, total);
        }
    }
}

// The kernel for each number of rows from 1 on.
template <typename Lanes>
struct ChunkKernels {
    using Kernel = void (*)(const ChunkArgs<Lanes>&);
    static constexpr Kernel kOf[] = {nullptr,
                                     add_chunk<Lanes, 1>,
                                     add_chunk<Lanes, 2>,
                                     add_chunk<Lanes, 3>,
                                     add_chunk<Lanes, 4>,
                                     add_chunk<Lanes, std::min(5, Lanes::kRows)>,
                                     add_chunk<Lanes, std::min(6, Lanes::kRows)>};
};

// All rows over one chunk. Where several passes share it, each asks memory for its part of the next chunk, which may
// lie beyond the panel: the next panel stands there, or nothing that a prefetch would mind. Measured (docs/kernels.md):
// 16 rows gain a quarter; a single pass loses, because the processor's own prefetching is better.
template <typename Lanes>
void add_rows(const PanelArgs& args, ChunkArgs<Lanes> chunk) {
    constexpr int64_t kLanes = int64_t{Lanes::kVectors} * Lanes::kCount;
    const auto* a = chunk.a;
    const Pair* panel = chunk.panel;
    const float* bias = chunk.bias;
    const int64_t num_passes = (args.rows.num_rows + Lanes::kRows - 1) / Lanes::kRows * (kPanelOutputs / kLanes);
    const int64_t lines_per_pair = (kPanelOutputs / kLineWords + num_passes - 1) / num_passes;
    if (num_passes > 1 && args.rows.num_rows <= kFetchRows) chunk.fetch_step = lines_per_pair * kLineWords;
    chunk.fetch = panel + chunk.count * kPanelOutputs;
    for (int64_t r = 0; r < args.rows.num_rows; r += Lanes::kRows) {
        const int64_t num = std::min<int64_t>(Lanes::kRows, args.rows.num_rows - r);
        for (int64_t lane = 0; lane < kPanelOutputs; lane += kLanes) {
            chunk.a = a + r * chunk.stride;
            chunk.panel = panel + lane;
            chunk.out = args.out + r * args.out_stride + lane;
            chunk.bias = bias != nullptr ? bias + lane : nullptr;
            ChunkKernels<Lanes>::kOf[num](chunk);
            chunk.fetch += chunk.count * chunk.fetch_step;
        }
    }
}

template <typename Lanes>
void panel_of(const PanelArgs& args) {
    const bool one_chunk = has_free_order<Lanes>() && args.rows.num_rows <= kFetchRows;
    const int64_t chunk_pairs = one_chunk ? args.rows.num_pairs : reference::kDotChunk / 2;
    for (int64_t first = 0; first < args.rows.num_pairs; first += chunk_pairs) {
        ChunkArgs<Lanes> chunk;
        chunk.a = elements_of<Lanes>(args.rows) + first * Lanes::kPerPair;
        chunk.stride = args.rows.num_pairs * Lanes::kPerPair;
        chunk.panel = args.panel + first * kPanelOutputs;
        chunk.count = std::min(chunk_pairs, args.rows.num_pairs - first);
        chunk.out_stride = args.out_stride;
        chunk.first = first == 0;
        chunk.bias = first + chunk.count == args.rows.num_pairs ? args.bias : nullptr;
        add_rows(args, chunk);
    }
}

}  // namespace
}  // namespace verbatim::cpu
