// kernels/cpu/ops/attention_loops.h: owns the implementation of AttendTileArgs for one kind of lanes
// (kernels/cpu/ops/lanes_*.h). Included inside the target.
//
// A tile is two small matmuls, as in matmul_loops.h: q rows by K, whose lanes are positions, and p rows by V, whose
// lanes are dims; several rows share each loaded word of the tile. The first rows prefetch the same words of the next
// tile, because its pages are not adjacent and the hardware prefetcher does not find them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/ops/cpu_ops.h"
#include "kernels/cpu/ops/matmul_loops.h"
#include "kernels/cpu/ops/portable.h"
#include "kernels/cpu/ops/softmax_loops.h"

namespace verbatim::cpu {
namespace {

using reference::kKvTile;

// s[r][lane] for `num` rows and the positions of kVectors vectors of the tile from vector `first` on.
template <typename Lanes, int num>
void score_rows(const AttendTileArgs& args, int64_t row, int64_t first, int64_t num_groups) {
    constexpr int kVectors = Lanes::kVectors;
    const int64_t stride = args.q.num_pairs * Lanes::kPerPair;
    const auto* q = elements_of<Lanes>(args.q) + row * stride;
    const Pair* k[kVectors];
    const Pair* next[kVectors];
    const bool fetches = args.next != nullptr && row == 0;
    for (int v = 0; v < kVectors; ++v) {
        const int64_t position = (first + v) * Lanes::kCount;
        const int64_t group = position / kGroup;
        k[v] = args.tile->k[group < num_groups ? group : 0] + position % kGroup;  // beyond the end: computed, not used
        next[v] = fetches ? args.next->k[group] : nullptr;
    }
    typename Lanes::Floats total[num][kVectors];
    for (auto& lanes : total) std::fill_n(lanes, kVectors, Lanes::zero());
    for (int64_t begin = 0; begin < args.q.num_pairs; begin += reference::kDotChunk / 2) {
        typename Lanes::Floats acc[num][kVectors];
        for (auto& lanes : acc) std::fill_n(lanes, kVectors, Lanes::zero());
        for (int64_t j = begin; j < std::min(begin + reference::kDotChunk / 2, args.q.num_pairs); ++j) {
            typename Lanes::Words w[kVectors];
            for (int v = 0; v < kVectors; ++v) w[v] = Lanes::load_words(k[v] + j * args.tile->k_stride);
            for (int v = 0; v < kVectors && fetches; ++v) __builtin_prefetch(next[v] + j * args.tile->k_stride, 0, 2);
            Lanes::template dot_pair<num, kVectors>(q + j * Lanes::kPerPair, stride, w, acc);
        }
        for (int r = 0; r < num; ++r) {
            for (int v = 0; v < kVectors; ++v) total[r][v] = Lanes::add(total[r][v], acc[r][v]);
        }
    }
    for (int r = 0; r < num; ++r) {
        for (int v = 0; v < kVectors; ++v) {
            float* s = args.s + (row + r) * kKvTile + (first + v) * Lanes::kCount;
            Lanes::store(s, Lanes::mul(total[r][v], Lanes::broadcast(args.scale)));
        }
    }
}

// What value_rows needs besides the tile, for rows that see the same positions.
template <typename Lanes>
struct ValueArgs {
    const typename Lanes::Element* p = nullptr;  // [num, 64]
    int64_t num_visible = 0;
    const float* decay = nullptr;  // [num]
    float* o = nullptr;            // [num, head_dim]
    bool fetches = false;          // the first pass over the tile's V
};

// o = pv, or fma(o, decay, pv), for `num` rows and `vectors` vectors of dims from `first` on.
template <typename Lanes, int num, int vectors>
void value_rows(const AttendTileArgs& args, const ValueArgs<Lanes>& rows, int64_t first) {
    constexpr int64_t kStride = kTilePairs * Lanes::kPerPair;
    typename Lanes::Floats acc[num][vectors];
    for (auto& lanes : acc) std::fill_n(lanes, vectors, Lanes::zero());
    typename Lanes::Words w[vectors];
    for (int64_t j = 0; j < rows.num_visible / 2; ++j) {
        for (int v = 0; v < vectors; ++v) w[v] = Lanes::load_words(args.tile->v[j] + first + v * Lanes::kCount);
        for (int v = 0; v < vectors && rows.fetches; ++v) {
            __builtin_prefetch(args.next->v[j] + first + v * Lanes::kCount, 0, 2);
        }
        Lanes::template dot_pair<num, vectors>(rows.p + j * Lanes::kPerPair, kStride, w, acc);
    }
    if (rows.num_visible % 2 == 1) {  // the odd half of the last pair may hold any value
        const int64_t j = rows.num_visible / 2;
        for (int v = 0; v < vectors; ++v) {
            w[v] = Lanes::even_only(Lanes::load_words(args.tile->v[j] + first + v * Lanes::kCount));
        }
        Lanes::template dot_pair<num, vectors>(rows.p + j * Lanes::kPerPair, kStride, w, acc);
    }
    for (int r = 0; r < num; ++r) {
        for (int v = 0; v < vectors; ++v) {
            float* o = rows.o + r * args.head_dim + first + v * Lanes::kCount;
            const auto decay = Lanes::broadcast(rows.decay[r]);
            Lanes::store(o, args.first_of_run ? acc[r][v] : Lanes::fma(Lanes::load(o), decay, acc[r][v]));
        }
    }
}

// A table of the kernels for each number of rows from 1 on.
template <typename Lanes>
struct TileKernels {
    using Score = void (*)(const AttendTileArgs&, int64_t, int64_t, int64_t);
    using Value = void (*)(const AttendTileArgs&, const ValueArgs<Lanes>&, int64_t);
    static constexpr int kFive = std::min(5, Lanes::kRows);
    static constexpr int kSix = std::min(6, Lanes::kRows);
    static constexpr Score kScore[] = {nullptr,
                                       score_rows<Lanes, 1>,
                                       score_rows<Lanes, 2>,
                                       score_rows<Lanes, 3>,
                                       score_rows<Lanes, 4>,
                                       score_rows<Lanes, kFive>,
                                       score_rows<Lanes, kSix>};
    template <int vectors>
    static constexpr Value kValue[] = {nullptr,
                                       value_rows<Lanes, 1, vectors>,
                                       value_rows<Lanes, 2, vectors>,
                                       value_rows<Lanes, 3, vectors>,
                                       value_rows<Lanes, 4, vectors>,
                                       value_rows<Lanes, kFive, vectors>,
                                       value_rows<Lanes, kSix, vectors>};
};

template <typename Lanes>
void round_weights(const float* p, typename Lanes::Element* out) {
    if constexpr (Lanes::kPerPair == 1) round_to_pairs(p, kKvTile, 1.0F, out);
    if constexpr (Lanes::kPerPair == 2) round_to_floats(p, kKvTile, 1.0F, out);
}

// At most kRows rows from `row` on.
template <typename Lanes>
VERBATIM_LOOP void add_values(const AttendTileArgs& args, int64_t row, int64_t num) {
    alignas(64) typename Lanes::Element p[Lanes::kRows * kTilePairs * Lanes::kPerPair];
    float decay[Lanes::kRows];
    const int64_t num_visible = args.visible(row);
    for (int64_t r = 0; r < num; ++r) {
        float* s = args.s + (row + r) * kKvTile;
        decay[r] = softmax_row<LaneReductions<Lanes>>(s, static_cast<int32_t>(num_visible), args.first_of_run,
                                                      args.m[row + r], args.l[row + r]);
        round_weights<Lanes>(s, p + r * kTilePairs * Lanes::kPerPair);
    }
    const bool fetches = args.next != nullptr && row == 0;
    const ValueArgs<Lanes> rows{p, num_visible, decay, args.o + row * args.head_dim, fetches};
    constexpr int64_t kWide = int64_t{Lanes::kVectors} * Lanes::kCount;
    int64_t first = 0;
    for (; first + kWide <= args.head_dim; first += kWide) {
        TileKernels<Lanes>::template kValue<Lanes::kVectors>[num](args, rows, first);
    }
    for (; first < args.head_dim; first += Lanes::kCount) {
        TileKernels<Lanes>::template kValue<1>[num](args, rows, first);
    }
}

template <typename Lanes>
void attend_tile_of(const AttendTileArgs& args) {
    if (args.head_dim % Lanes::kCount != 0) return attend_tile_portable(args);
    const int64_t num_groups = (args.tile->num_visible + kGroup - 1) / kGroup;
    const int64_t num_vectors = num_groups * kGroup / Lanes::kCount;
    for (int64_t row = 0; row < args.q.num_rows; row += Lanes::kRows) {
        const int64_t num = std::min<int64_t>(Lanes::kRows, args.q.num_rows - row);
        for (int64_t first = 0; first < num_vectors; first += Lanes::kVectors) {
            TileKernels<Lanes>::kScore[num](args, row, first, num_groups);
        }
    }
    for (int64_t row = 0; row < args.q.num_rows;) {
        int64_t num = 1;
        while (num < Lanes::kRows && row + num < args.q.num_rows && args.visible(row + num) == args.visible(row)) ++num;
        add_values<Lanes>(args, row, num);
        row += num;
    }
}

}  // namespace
}  // namespace verbatim::cpu
