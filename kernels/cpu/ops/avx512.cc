// 16 outputs per vector. A pair's odd half is the word with its low half cleared, its even half the word shifted up:
// N3's two fma. VDPBF16PS is the same two in one instruction: odd first, rounded to nearest even, and subnormals
// cannot occur (NUMERICS N2, N3).
#include "kernels/cpu/ops/avx512.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>

#include "reference/numerics/constants.h"

// Functions, not files, are compiled for the instruction set: a file would leave its copies of inline functions to
// everybody.
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#define AVX512_BF16 __attribute__((target("avx512bf16,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))

namespace verbatim::cpu {

using reference::kDotChunk;
using reference::kKvTile;
using reference::kScanChunk;

namespace {

constexpr int64_t kLanes = 16;
constexpr int kVectors = kPanelOutputs / kLanes;  // of a panel
constexpr int kRows = 6;                          // rows x vectors accumulators, and room for the weights
constexpr int64_t kChunkPairs = kDotChunk / 2;

// Written with vector operators: GCC 12 takes the shift's intrinsic for a read of an uninitialised value.
using Words = uint32_t __attribute__((vector_size(64)));
AVX512 inline __m512 odd_half(__m512i pairs) { return (__m512)((Words)pairs & 0xFFFF0000u); }
AVX512 inline __m512 even_half(__m512i pairs) { return (__m512)((Words)pairs << 16); }

// --- matmul

// totals[r] += the chunk's dot products of `num` rows.
template <int num>
AVX512 void panel_rows(const float* a, int64_t stride, const Pair* panel, int64_t count, float* totals) {
    __m512 acc[num][kVectors];
    for (int r = 0; r < num; ++r) {
        for (int v = 0; v < kVectors; ++v) acc[r][v] = _mm512_setzero_ps();
    }
    for (int64_t j = 0; j < count; ++j) {
        __m512i w[kVectors];
        for (int v = 0; v < kVectors; ++v) w[v] = _mm512_loadu_si512(panel + j * kPanelOutputs + v * kLanes);
        for (int r = 0; r < num; ++r) {
            const __m512 odd = _mm512_set1_ps(a[r * stride + 2 * j + 1]);
            for (int v = 0; v < kVectors; ++v) {
                acc[r][v] = _mm512_fmadd_ps(odd, odd_half(w[v]), acc[r][v]);
            }
        }
        for (int r = 0; r < num; ++r) {
            const __m512 even = _mm512_set1_ps(a[r * stride + 2 * j]);
            for (int v = 0; v < kVectors; ++v) {
                acc[r][v] = _mm512_fmadd_ps(even, even_half(w[v]), acc[r][v]);
            }
        }
    }
    for (int r = 0; r < num; ++r) {
        for (int v = 0; v < kVectors; ++v) {
            float* total = totals + r * kPanelOutputs + v * kLanes;
            _mm512_storeu_ps(total, _mm512_add_ps(_mm512_loadu_ps(total), acc[r][v]));
        }
    }
}

template <int num>
AVX512_BF16 void panel_rows_bf16(const Pair* a, int64_t stride, const Pair* panel, int64_t count, float* totals) {
    __m512 acc[num][kVectors];
    for (int r = 0; r < num; ++r) {
        for (int v = 0; v < kVectors; ++v) acc[r][v] = _mm512_setzero_ps();
    }
    for (int64_t j = 0; j < count; ++j) {
        __m512i w[kVectors];
        for (int v = 0; v < kVectors; ++v) w[v] = _mm512_loadu_si512(panel + j * kPanelOutputs + v * kLanes);
        for (int r = 0; r < num; ++r) {
            const __m512i pair = _mm512_set1_epi32(static_cast<int>(a[r * stride + j]));
            for (int v = 0; v < kVectors; ++v) acc[r][v] = _mm512_dpbf16_ps(acc[r][v], (__m512bh)pair, (__m512bh)w[v]);
        }
    }
    for (int r = 0; r < num; ++r) {
        for (int v = 0; v < kVectors; ++v) {
            float* total = totals + r * kPanelOutputs + v * kLanes;
            _mm512_storeu_ps(total, _mm512_add_ps(_mm512_loadu_ps(total), acc[r][v]));
        }
    }
}

// The kernel for each number of rows, 1 ... kRows.
using PanelRows = void (*)(const float*, int64_t, const Pair*, int64_t, float*);
constexpr PanelRows kPanelRows[] = {nullptr,       panel_rows<1>, panel_rows<2>, panel_rows<3>,
                                    panel_rows<4>, panel_rows<5>, panel_rows<6>};
using PanelRowsBf16 = void (*)(const Pair*, int64_t, const Pair*, int64_t, float*);
constexpr PanelRowsBf16 kPanelRowsBf16[] = {nullptr,
                                            panel_rows_bf16<1>,
                                            panel_rows_bf16<2>,
                                            panel_rows_bf16<3>,
                                            panel_rows_bf16<4>,
                                            panel_rows_bf16<5>,
                                            panel_rows_bf16<6>};

// Chunk by chunk, so that a chunk of the panel (32 KiB) stays in the first cache for all rows.
template <typename A, typename Kernels>
void panel_chunks(const PanelArgs& args, const A* a, int64_t pair_size, const Kernels& kernels) {
    std::fill_n(args.totals, args.rows.num_rows * kPanelOutputs, 0.0F);
    const int64_t stride = args.rows.num_pairs * pair_size;
    for (int64_t first = 0; first < args.rows.num_pairs; first += kChunkPairs) {
        const int64_t count = std::min(kChunkPairs, args.rows.num_pairs - first);
        for (int64_t r = 0; r < args.rows.num_rows; r += kRows) {
            const int64_t num = std::min<int64_t>(kRows, args.rows.num_rows - r);
            kernels[num](a + r * stride + first * pair_size, stride, args.panel + first * kPanelOutputs, count,
                         args.totals + r * kPanelOutputs);
        }
    }
}

// --- attention

// s[lane] of `groups` groups of 16 positions.
template <int groups>
AVX512 void tile_scores(const AttendTileArgs& args, float* s) {
    const int64_t count = num_pairs(args.head_dim);
    __m512 total[groups];
    for (int g = 0; g < groups; ++g) total[g] = _mm512_setzero_ps();
    for (int64_t first = 0; first < count; first += kChunkPairs) {
        __m512 acc[groups];
        for (int g = 0; g < groups; ++g) acc[g] = _mm512_setzero_ps();
        for (int64_t j = first; j < std::min(first + kChunkPairs, count); ++j) {
            const __m512 odd = _mm512_set1_ps(args.q[2 * j + 1]);
            const __m512 even = _mm512_set1_ps(args.q[2 * j]);
            for (int g = 0; g < groups; ++g) {
                const __m512i k = _mm512_loadu_si512(args.tile->k[g] + j * args.tile->k_stride);
                acc[g] = _mm512_fmadd_ps(odd, odd_half(k), acc[g]);
                acc[g] = _mm512_fmadd_ps(even, even_half(k), acc[g]);
            }
        }
        for (int g = 0; g < groups; ++g) total[g] = _mm512_add_ps(total[g], acc[g]);
    }
    for (int g = 0; g < groups; ++g)
        _mm512_storeu_ps(s + g * kLanes, _mm512_mul_ps(total[g], _mm512_set1_ps(args.scale)));
}

template <int groups>
AVX512_BF16 void tile_scores_bf16(const AttendTileArgs& args, float* s) {
    const int64_t count = num_pairs(args.head_dim);
    __m512 total[groups];
    for (int g = 0; g < groups; ++g) total[g] = _mm512_setzero_ps();
    for (int64_t first = 0; first < count; first += kChunkPairs) {
        __m512 acc[groups];
        for (int g = 0; g < groups; ++g) acc[g] = _mm512_setzero_ps();
        for (int64_t j = first; j < std::min(first + kChunkPairs, count); ++j) {
            const __m512i q = _mm512_set1_epi32(static_cast<int>(args.q_pairs[j]));
            for (int g = 0; g < groups; ++g) {
                const __m512i k = _mm512_loadu_si512(args.tile->k[g] + j * args.tile->k_stride);
                acc[g] = _mm512_dpbf16_ps(acc[g], (__m512bh)q, (__m512bh)k);
            }
        }
        for (int g = 0; g < groups; ++g) total[g] = _mm512_add_ps(total[g], acc[g]);
    }
    for (int g = 0; g < groups; ++g)
        _mm512_storeu_ps(s + g * kLanes, _mm512_mul_ps(total[g], _mm512_set1_ps(args.scale)));
}

using TileScores = void (*)(const AttendTileArgs&, float*);
constexpr TileScores kTileScores[] = {nullptr, tile_scores<1>, tile_scores<2>, tile_scores<3>, tile_scores<4>};
constexpr TileScores kTileScoresBf16[] = {nullptr, tile_scores_bf16<1>, tile_scores_bf16<2>, tile_scores_bf16<3>,
                                          tile_scores_bf16<4>};

// The first `count` lanes: none for a vector that lies beyond the end.
constexpr __mmask16 mask_of(int64_t count) {
    return static_cast<__mmask16>((uint32_t{1} << std::clamp<int64_t>(count, 0, kLanes)) - 1);
}

// o = pv of the tile for dims [first, first + 16 · vectors), or fma(o, decay, pv). Dims beyond head_dim are masked.
template <int vectors>
AVX512 void tile_values(const float* p, const KvTileRefs& tile, int64_t first, int64_t head_dim, bool assign,
                        float decay, float* o) {
    __mmask16 masks[vectors];
    __m512 acc[vectors];
    for (int v = 0; v < vectors; ++v) {
        masks[v] = mask_of(head_dim - first - v * kLanes);
        acc[v] = _mm512_setzero_ps();
    }
    const int64_t whole = tile.num_visible / 2;
    for (int64_t j = 0; j < whole; ++j) {
        const __m512 odd = _mm512_set1_ps(p[2 * j + 1]);
        const __m512 even = _mm512_set1_ps(p[2 * j]);
        for (int v = 0; v < vectors; ++v) {
            const __m512i pairs = _mm512_maskz_loadu_epi32(masks[v], tile.v[j] + first + v * kLanes);
            acc[v] = _mm512_fmadd_ps(odd, odd_half(pairs), acc[v]);
            acc[v] = _mm512_fmadd_ps(even, even_half(pairs), acc[v]);
        }
    }
    if (tile.num_visible % 2 == 1) {
        const __m512 even = _mm512_set1_ps(p[2 * whole]);
        for (int v = 0; v < vectors; ++v) {
            const __m512i pairs = _mm512_maskz_loadu_epi32(masks[v], tile.v[whole] + first + v * kLanes);
            acc[v] = _mm512_fmadd_ps(even, even_half(pairs), acc[v]);
        }
    }
    for (int v = 0; v < vectors; ++v) {
        float* out = o + first + v * kLanes;
        if (!assign) acc[v] = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(masks[v], out), _mm512_set1_ps(decay), acc[v]);
        _mm512_mask_storeu_ps(out, masks[v], acc[v]);
    }
}

void attend(const AttendTileArgs& args, const TileScores* scores, SoftmaxState& run) {
    alignas(64) float s[kKvTile] = {};
    scores[(args.tile->num_visible + kGroup - 1) / kGroup](args, s);
    const bool assign = run.empty;
    const float decay = softmax_tile(s, args.tile->num_visible, run);
    constexpr int64_t kDims = 4 * kLanes;
    for (int64_t first = 0; first < args.head_dim; first += kDims) {
        const auto values = args.head_dim - first > kLanes ? tile_values<4> : tile_values<1>;
        values(s, *args.tile, first, args.head_dim, assign, decay, run.o);
    }
    run.empty = false;
}

// --- scan

// 16 channels over all tokens, for one chunk of the state's n: the chunk stays in registers. y is the total over the
// chunks so far.
template <bool full>
AVX512 void scan_chunk(const ScanArgs& args, int64_t first_n, int64_t first_p, __mmask16 mask) {
    const int64_t count = full ? kScanChunk : std::min(kScanChunk, args.d_state - first_n);
    float* state = args.state + first_n * args.head_dim + first_p;
    __m512 h[kScanChunk];
    for (int64_t n = 0; n < count; ++n) h[n] = _mm512_maskz_loadu_ps(mask, state + n * args.head_dim);
    for (int64_t t = 0; t < args.num_tokens; ++t) {
        const float* b = args.b + t * args.stride + first_n;
        const float* c = args.c + t * args.stride + first_n;
        const __m512 x = _mm512_maskz_loadu_ps(mask, args.x + t * args.stride + first_p);
        const __m512 u = _mm512_mul_ps(_mm512_set1_ps(args.dt[t]), x);
        const __m512 decay = _mm512_set1_ps(args.decay[t]);
        __m512 acc = _mm512_setzero_ps();
        for (int64_t n = 0; n < count; ++n) {
            h[n] = _mm512_fmadd_ps(h[n], decay, _mm512_mul_ps(u, _mm512_set1_ps(b[n])));
            acc = _mm512_fmadd_ps(_mm512_set1_ps(c[n]), h[n], acc);
        }
        float* y = args.y + t * args.y_stride + first_p;
        const __m512 total = first_n == 0 ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, y);
        _mm512_mask_storeu_ps(y, mask, _mm512_add_ps(total, acc));
    }
    for (int64_t n = 0; n < count; ++n) _mm512_mask_storeu_ps(state + n * args.head_dim, mask, h[n]);
}

AVX512 void add_input(const ScanArgs& args, int64_t first_p, __mmask16 mask) {
    const __m512 d = _mm512_set1_ps(args.d);
    for (int64_t t = 0; t < args.num_tokens; ++t) {
        float* y = args.y + t * args.y_stride + first_p;
        const __m512 x = _mm512_maskz_loadu_ps(mask, args.x + t * args.stride + first_p);
        _mm512_mask_storeu_ps(y, mask, _mm512_fmadd_ps(d, x, _mm512_maskz_loadu_ps(mask, y)));
    }
}

}  // namespace

void panel_avx512(const PanelArgs& args) { panel_chunks(args, args.rows.floats, 2, kPanelRows); }
void panel_avx512_bf16(const PanelArgs& args) { panel_chunks(args, args.rows.pairs, 1, kPanelRowsBf16); }

void attend_tile_avx512(const AttendTileArgs& args, SoftmaxState& run) { attend(args, kTileScores, run); }
void attend_tile_avx512_bf16(const AttendTileArgs& args, SoftmaxState& run) { attend(args, kTileScoresBf16, run); }

void scan_avx512(const ScanArgs& args) {
    for (int64_t p = 0; p < args.head_dim; p += kLanes) {
        const __mmask16 mask = mask_of(args.head_dim - p);
        for (int64_t n = 0; n < args.d_state; n += kScanChunk) {
            (n + kScanChunk <= args.d_state ? scan_chunk<true> : scan_chunk<false>)(args, n, p, mask);
        }
        add_input(args, p, mask);
    }
}

}  // namespace verbatim::cpu

#endif
