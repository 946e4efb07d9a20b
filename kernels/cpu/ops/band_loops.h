// kernels/cpu/ops/band_loops.h: PanelArgs for rows in bands, where a pair takes two fma. Included inside the target.
//
// A band's rows stand in registers against one vector of outputs, so that a weight is unpacked once for all of them,
// and every element of theirs is an operand at a constant distance from one address. A chunk of NUMERICS N3 of a panel
// (32 KiB) stays in the first cache while the bands pass over it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/ops/cpu_ops.h"
#include "reference/numerics/constants.h"

namespace verbatim::cpu {
namespace {

// A band by one vector of outputs, over one chunk.
struct BandArgs {
    const float* a = nullptr;     // [2 · num_pairs, width]
    const Pair* panel = nullptr;  // the chunk's first pair, the vector's first output
    int64_t num_pairs = 0;
    const char* fetch = nullptr;  // a line to ask memory for with the first pair
    int64_t fetch_step = 0;       // to that of the next pair: 0: again the same, which costs nothing
    float* out = nullptr;         // the first row's total, first output
    int64_t out_stride = 0;
    int64_t num_rows = 0;         // of the band, up to its width
    bool first = false;           // of the panel: the total is +0, and +0 + acc is acc, which cannot be -0
    const float* bias = nullptr;  // added in the end, or null
};

template <typename Lanes, int width>
inline __attribute__((always_inline)) void add_products(const float* a, typename Lanes::Floats weights,
                                                        typename Lanes::Floats (&acc)[width]) {
#pragma GCC unroll 24
    for (int r = 0; r < width; ++r) acc[r] = Lanes::fma(Lanes::broadcast(a[r]), weights, acc[r]);
}

template <typename Lanes, int width>
void band_chunk(const BandArgs& args) {
    typename Lanes::Floats acc[width];
#pragma GCC unroll 24
    for (int r = 0; r < width; ++r) acc[r] = Lanes::zero();
    const float* a = args.a;
    const char* fetch = args.fetch;
    for (int64_t j = 0; j < args.num_pairs; ++j) {
        const typename Lanes::Words words = Lanes::load_words(args.panel + j * kPanelOutputs);
        __builtin_prefetch(fetch, 0, 2);
        add_products<Lanes, width>(a + width, Lanes::odd_of(words), acc);
        add_products<Lanes, width>(a, Lanes::even_of(words), acc);
        a += 2 * width;
        fetch += args.fetch_step;
    }
#pragma GCC unroll 24
    for (int r = 0; r < width; ++r) {
        if (r >= args.num_rows) break;
        float* out = args.out + r * args.out_stride;
        auto sum = args.first ? acc[r] : Lanes::add(Lanes::load(out), acc[r]);
        if (args.bias != nullptr) sum = Lanes::add(sum, Lanes::load(args.bias));
        Lanes::store(out, sum);
    }
}

template <typename Lanes>
void band_chunk_of(int64_t width, const BandArgs& args) {
    switch (width) {
        case 8: return band_chunk<Lanes, 8>(args);
        case 12: return band_chunk<Lanes, 12>(args);
        case 16: return band_chunk<Lanes, 16>(args);
        case 20: return band_chunk<Lanes, 20>(args);
        default: return band_chunk<Lanes, 24>(args);
    }
}
static_assert(kMinBandRows == 8 && kBandRows == 24, "band_chunk_of knows these widths");

// The first band asks memory for the panel's next chunk, which may lie beyond the panel: the next panel stands there,
// or nothing that a prefetch would mind. The others ask for the next band's part of this chunk.
template <typename Lanes>
void panel_of_bands(const PanelArgs& args) {
    constexpr int64_t kChunkPairs = reference::kDotChunk / 2;
    const RoundedRows& rows = args.rows;
    for (int64_t first = 0; first < rows.num_pairs; first += kChunkPairs) {
        const int64_t count = std::min(kChunkPairs, rows.num_pairs - first);
        const bool last = first + count == rows.num_pairs;
        const Pair* panel = args.panel + first * kPanelOutputs;
        for (int64_t r = 0; r < rows.num_rows; r += kBandRows) {
            const int64_t width = band_width(rows.num_rows - r);
            const float* a = rows.bands + (r * rows.num_pairs + first * width) * 2;
            const auto* next = reinterpret_cast<const char*>(
                r == 0 ? static_cast<const void*>(panel + count * kPanelOutputs) : a + rows.num_pairs * width * 2);
            const int64_t fetch_end = r == 0 ? kPanelOutputs : width * 2;  // words of it per pair
            for (int64_t lane = 0; lane < kPanelOutputs; lane += Lanes::kCount) {
                band_chunk_of<Lanes>(width, {.a = a,
                                             .panel = panel + lane,
                                             .num_pairs = count,
                                             .fetch = next + lane * 4 * count,
                                             .fetch_step = lane < fetch_end ? kLineBytes : 0,
                                             .out = args.out + r * args.out_stride + lane,
                                             .out_stride = args.out_stride,
                                             .num_rows = std::min(width, rows.num_rows - r),
                                             .first = first == 0,
                                             .bias = last && args.bias != nullptr ? args.bias + lane : nullptr});
            }
        }
    }
}

}  // namespace
}  // namespace verbatim::cpu
