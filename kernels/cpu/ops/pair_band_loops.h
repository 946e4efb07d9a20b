// kernels/cpu/ops/pair_band_loops.h: owns the implementation of PanelArgs for rows in bands of pairs, where one
// instruction takes a pair. Included inside the target.
//
// In a band the rows' pairs are interleaved, one line per pair of K, so rows whose lengths are powers of two do not
// compete for the same cache sets, and each row's pair is a memory operand at a constant offset from one address. The
// bands pass over a panel's chunk of NUMERICS N3 (32 KiB), which stays in the L1 cache, and divide the prefetch of the
// next chunk.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/cpu/ops/cpu_ops.h"
#include "reference/numerics/constants.h"

namespace verbatim::cpu {
namespace {

// A band by some vectors of outputs, over one chunk.
struct PairBandArgs {
    const Pair* a = nullptr;      // [num_pairs, width]
    const Pair* panel = nullptr;  // the chunk's first pair, the first output
    int64_t num_pairs = 0;
    const char* fetch = nullptr;  // what to prefetch meanwhile,
    int64_t fetch_lines = 0;      // this many lines per pair
    float* out = nullptr;         // the first row's total, first output
    int64_t out_stride = 0;
    bool first = false;           // the panel's first chunk: the total is +0, and +0 + acc is acc, which cannot be -0
    const float* bias = nullptr;  // added at the end, or null
};

// Vectors of outputs for this number of rows: the sums fit the registers.
constexpr int vectors_per_tile(int64_t rows) { return rows <= kPairBands.rows ? 4 : 2; }

template <typename Lanes, int width>
void pair_band_chunk(const PairBandArgs& args) {
    constexpr int kVectors = vectors_per_tile(width);
    typename Lanes::Floats acc[width][kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < width; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) acc[r][v] = Lanes::zero();
    }
    const Pair* a = args.a;
    const Pair* panel = args.panel;
    const char* fetch = args.fetch;
    for (int64_t j = 0; j < args.num_pairs; ++j) {
        for (int64_t i = 0; i < args.fetch_lines; ++i) __builtin_prefetch(fetch + i * kLineBytes, 0, 2);
        typename Lanes::Words w[kVectors];
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) w[v] = Lanes::load_words(panel + v * Lanes::kCount);
        Lanes::template dot_pair<width, kVectors>(a, 1, w, acc);
        a += width;
        panel += kPanelOutputs;
        fetch += args.fetch_lines * kLineBytes;
    }
#pragma GCC unroll 8
    for (int r = 0; r < width; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
            const int64_t lane = v * Lanes::kCount;
            add_to_total<Lanes>(acc[r][v], args.first, args.bias != nullptr ? args.bias + lane : nullptr,
                                args.out + r * args.out_stride + lane);
        }
    }
}

template <typename Lanes, size_t... i>
void pair_band_chunk_of(int64_t width, const PairBandArgs& args, std::index_sequence<i...> /*widths*/) {
    static constexpr void (*kKernels[])(const PairBandArgs&) = {pair_band_chunk<Lanes, i + 1>...};
    kKernels[width - 1](args);
}

// The next chunk may lie beyond the panel, in the next panel or at an address that a prefetch ignores.
template <typename Lanes>
void panel_of_pair_bands(const PanelArgs& args) {
    constexpr int64_t kChunkPairs = reference::kDotChunk / 2;
    constexpr int64_t kPairLines = kPanelOutputs * int64_t{sizeof(Pair)} / kLineBytes;
    constexpr auto kWidths = std::make_index_sequence<kPairBands.most>();
    const RoundedRows& rows = args.rows;
    int64_t num_passes = 0;
    for (int64_t r = 0, width = 0; r < rows.num_rows; r += width) {
        width = kPairBands.width(r, rows.num_rows);
        num_passes += kPanelOutputs / (vectors_per_tile(width) * Lanes::kCount);
    }
    for (int64_t first = 0; first < rows.num_pairs; first += kChunkPairs) {
        const int64_t count = std::min(kChunkPairs, rows.num_pairs - first);
        const bool last = first + count == rows.num_pairs;
        const Pair* panel = args.panel + first * kPanelOutputs;
        const auto* fetch = reinterpret_cast<const char*>(panel + count * kPanelOutputs);
        int64_t lines_left = kPairLines;
        int64_t passes_left = num_passes;
        for (int64_t r = 0, width = 0; r < rows.num_rows; r += width) {
            width = kPairBands.width(r, rows.num_rows);
            const int64_t outputs = vectors_per_tile(width) * Lanes::kCount;
            for (int64_t lane = 0; lane < kPanelOutputs; lane += outputs) {
                const int64_t lines = (lines_left + passes_left - 1) / passes_left;
                pair_band_chunk_of<Lanes>(width,
                                          {.a = rows.pair_bands + r * rows.num_pairs + first * width,
                                           .panel = panel + lane,
                                           .num_pairs = count,
                                           .fetch = fetch,
                                           .fetch_lines = lines,
                                           .out = args.out + r * args.out_stride + lane,
                                           .out_stride = args.out_stride,
                                           .first = first == 0,
                                           .bias = last && args.bias != nullptr ? args.bias + lane : nullptr},
                                          kWidths);
                fetch += lines * count * kLineBytes;
                lines_left -= lines;
                --passes_left;
            }
        }
    }
}

}  // namespace
}  // namespace verbatim::cpu
