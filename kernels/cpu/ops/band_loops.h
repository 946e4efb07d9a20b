// kernels/cpu/ops/band_loops.h: owns the implementation of PanelArgs for rows in bands, where a pair takes two fma.
// Included inside the target.
//
// A band is a few rows, interleaved element by element. Its sums against a strip of 16 outputs stay in registers, so a
// weight is unpacked once for all rows of the band, and every element of the rows is a memory operand at a constant
// offset from one address. A panel's chunk of NUMERICS N3 (32 KiB) stays in the L1 cache, or in L2 where L1 is smaller,
// while the bands pass over it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

#include "kernels/cpu/ops/cpu_ops.h"
#include "reference/numerics/constants.h"

namespace verbatim::cpu {
namespace {

constexpr int64_t kStripOutputs = kLineBytes / int64_t{sizeof(Pair)};  // a strip's part of a pair is one cache line

template <typename Lanes>
constexpr int kStripVectors = kStripOutputs / Lanes::kCount;

// A band by a strip, over one chunk.
struct BandArgs {
    const float* a = nullptr;     // [2 · num_pairs, width]
    const Pair* panel = nullptr;  // the chunk's first pair, the strip's first output
    int64_t num_pairs = 0;
    const char* fetch = nullptr;  // a line to prefetch with the first pair
    int64_t fetch_step = 0;       // offset of the next pair's line; 0: the same line again, which is free
    float* out = nullptr;         // the first row's total, first output
    int64_t out_stride = 0;
    int64_t num_rows = 0;         // in the band, at most its width
    bool first = false;           // the panel's first chunk: the total is +0, and +0 + acc is acc, which cannot be -0
    const float* bias = nullptr;  // added at the end, or null
};

template <typename Lanes, int width>
inline __attribute__((always_inline)) void add_products(const float* a,
                                                        const typename Lanes::Floats (&weights)[kStripVectors<Lanes>],
                                                        typename Lanes::Floats (&acc)[width][kStripVectors<Lanes>]) {
#pragma GCC unroll 24
    for (int r = 0; r < width; ++r) {
        const auto x = Lanes::broadcast(a[r]);
        for (int v = 0; v < kStripVectors<Lanes>; ++v) acc[r][v] = Lanes::fma(x, weights[v], acc[r][v]);
    }
}

template <typename Lanes, int width>
void band_chunk(const BandArgs& args) {
    constexpr int kVectors = kStripVectors<Lanes>;
    typename Lanes::Floats acc[width][kVectors], half[kVectors];
#pragma GCC unroll 24
    for (int r = 0; r < width; ++r) {
        for (int v = 0; v < kVectors; ++v) acc[r][v] = Lanes::zero();
    }
    const float* a = args.a;
    const Pair* panel = args.panel;
    const char* fetch = args.fetch;
    for (int64_t j = 0; j < args.num_pairs; ++j) {
        __builtin_prefetch(fetch, 0, 2);
        for (int v = 0; v < kVectors; ++v) half[v] = Lanes::odd_of(Lanes::load_words(panel + v * Lanes::kCount));
        add_products<Lanes, width>(a + width, half, acc);
        // Words of several vectors are loaded again: kept, they would spill sums from the registers.
        if constexpr (kVectors > 1) std::atomic_signal_fence(std::memory_order_seq_cst);
        for (int v = 0; v < kVectors; ++v) half[v] = Lanes::even_of(Lanes::load_words(panel + v * Lanes::kCount));
        add_products<Lanes, width>(a, half, acc);
        a += 2 * width;
        panel += kPanelOutputs;
        fetch += args.fetch_step;
    }
#pragma GCC unroll 24
    for (int r = 0; r < width; ++r) {
        if (r >= args.num_rows) break;
        for (int v = 0; v < kVectors; ++v) {
            const int64_t lane = v * Lanes::kCount;
            add_to_total<Lanes>(acc[r][v], args.first, args.bias != nullptr ? args.bias + lane : nullptr,
                                args.out + r * args.out_stride + lane);
        }
    }
}

// A table for every possible width of a band.
template <typename Lanes, size_t... i>
void band_chunk_of(int64_t width, const BandArgs& args, std::index_sequence<i...> /*widths*/) {
    constexpr BandShape kShape = Lanes::kBands;
    static constexpr void (*kKernels[])(const BandArgs&) = {band_chunk<Lanes, kShape.least + i * kShape.step>...};
    kKernels[(width - kShape.least) / kShape.step](args);
}

// The first band prefetches the panel's next chunk. That may lie beyond the panel, in the next panel or at an address
// that a prefetch ignores. Later bands prefetch the next band's part of this chunk.
template <typename Lanes>
void panel_of_bands(const PanelArgs& args) {
    constexpr int64_t kChunkPairs = reference::kDotChunk / 2;
    constexpr BandShape kShape = Lanes::kBands;
    constexpr auto kWidths = std::make_index_sequence<(kShape.rows - kShape.least) / kShape.step + 1>();
    const RoundedRows& rows = args.rows;
    for (int64_t first = 0; first < rows.num_pairs; first += kChunkPairs) {
        const int64_t count = std::min(kChunkPairs, rows.num_pairs - first);
        const bool last = first + count == rows.num_pairs;
        const Pair* panel = args.panel + first * kPanelOutputs;
        for (int64_t r = 0; r < rows.num_rows; r += kShape.rows) {
            const int64_t width = kShape.width(r, rows.num_rows);
            const float* a = rows.bands + (r * rows.num_pairs + first * width) * 2;
            const auto* next = reinterpret_cast<const char*>(
                r == 0 ? static_cast<const void*>(panel + count * kPanelOutputs) : a + rows.num_pairs * width * 2);
            const int64_t fetch_end = r == 0 ? kPanelOutputs : width * 2;  // words per pair
            for (int64_t lane = 0; lane < kPanelOutputs; lane += kStripOutputs) {
                band_chunk_of<Lanes>(width,
                                     {.a = a,
                                      .panel = panel + lane,
                                      .num_pairs = count,
                                      .fetch = next + lane * 4 * count,
                                      .fetch_step = lane < fetch_end ? kLineBytes : 0,
                                      .out = args.out + r * args.out_stride + lane,
                                      .out_stride = args.out_stride,
                                      .num_rows = std::min(width, rows.num_rows - r),
                                      .first = first == 0,
                                      .bias = last && args.bias != nullptr ? args.bias + lane : nullptr},
                                     kWidths);
            }
        }
    }
}

}  // namespace
}  // namespace verbatim::cpu
