// Plain loops whose lanes are outputs; the compiler vectorises them for the levels of VERBATIM_CLONES.
#include "kernels/cpu/ops/portable.h"

#include <algorithm>

#include "reference/numerics/bf16.h"
#include "reference/numerics/constants.h"
#include "reference/numerics/math.h"
#include "reference/ops/rms_norm.h"

namespace verbatim::cpu {

using reference::exp_f32;
using reference::fma_f32;
using reference::kDotChunk;
using reference::kKvTile;
using reference::kScanChunk;

namespace {

constexpr int64_t kChunkPairs = kDotChunk / 2;

// One chunk of a panel as binary32: even and odd elements of each pair.
struct PanelTile {
    float even[kChunkPairs][kPanelOutputs];
    float odd[kChunkPairs][kPanelOutputs];
};

VERBATIM_CLONES void unpack_chunk(const Pair* panel, int64_t count, PanelTile& tile) {
    for (int64_t j = 0; j < count; ++j) {
        for (int64_t lane = 0; lane < kPanelOutputs; ++lane) {
            tile.even[j][lane] = even_of(panel[j * kPanelOutputs + lane]);
            tile.odd[j][lane] = odd_of(panel[j * kPanelOutputs + lane]);
        }
    }
}

VERBATIM_CLONES void add_chunk(const float* a, const PanelTile& tile, int64_t count, float* totals) {
    constexpr int64_t kLanes = 32;  // accumulators that fit the registers
    for (int64_t first = 0; first < kPanelOutputs; first += kLanes) {
        float acc[kLanes] = {};
        for (int64_t j = 0; j < count; ++j) {
            for (int64_t i = 0; i < kLanes; ++i) acc[i] = fma_f32(a[2 * j + 1], tile.odd[j][first + i], acc[i]);
            for (int64_t i = 0; i < kLanes; ++i) acc[i] = fma_f32(a[2 * j], tile.even[j][first + i], acc[i]);
        }
        for (int64_t i = 0; i < kLanes; ++i) totals[first + i] += acc[i];
    }
}

// s[lane] = dot_n3(q, k of the group's position) · scale.
VERBATIM_CLONES void group_scores(const float* q, const Pair* k, int64_t stride, int64_t count, float scale, float* s) {
    float total[kGroup] = {};
    for (int64_t first = 0; first < count; first += kChunkPairs) {
        float acc[kGroup] = {};
        for (int64_t j = first; j < std::min(first + kChunkPairs, count); ++j) {
            const Pair* pairs = k + j * stride;
            for (int64_t i = 0; i < kGroup; ++i) acc[i] = fma_f32(q[2 * j + 1], odd_of(pairs[i]), acc[i]);
            for (int64_t i = 0; i < kGroup; ++i) acc[i] = fma_f32(q[2 * j], even_of(pairs[i]), acc[i]);
        }
        for (int64_t i = 0; i < kGroup; ++i) total[i] += acc[i];
    }
    for (int64_t i = 0; i < kGroup; ++i) s[i] = total[i] * scale;
}

// pv[i] = dot_n3 of p and v over the visible positions: what is masked would add +0 · +0, which changes nothing.
VERBATIM_CLONES void tile_values(const float* p, const KvTileRefs& tile, int64_t head_dim, float* pv) {
    std::fill_n(pv, head_dim, 0.0F);
    for (int64_t j = 0; 2 * j < tile.num_visible; ++j) {
        const Pair* pairs = tile.v[j];
        if (2 * j + 1 < tile.num_visible) {
            for (int64_t i = 0; i < head_dim; ++i) pv[i] = fma_f32(p[2 * j + 1], odd_of(pairs[i]), pv[i]);
        }
        for (int64_t i = 0; i < head_dim; ++i) pv[i] = fma_f32(p[2 * j], even_of(pairs[i]), pv[i]);
    }
}

VERBATIM_CLONES void tile_weights(float* s, int64_t num_visible, float m) {
    for (int64_t j = 0; j < kKvTile; ++j) {
        const float weight = exp_f32(s[j] - m);
        s[j] = j < num_visible ? weight : 0.0F;
    }
}

}  // namespace

void panel_portable(const PanelArgs& args) {
    static thread_local PanelTile tile;
    std::fill_n(args.totals, args.rows.num_rows * kPanelOutputs, 0.0F);
    for (int64_t first = 0; first < args.rows.num_pairs; first += kChunkPairs) {
        const int64_t count = std::min(kChunkPairs, args.rows.num_pairs - first);
        unpack_chunk(args.panel + first * kPanelOutputs, count, tile);
        for (int64_t r = 0; r < args.rows.num_rows; ++r) {
            const float* a = args.rows.floats + 2 * (r * args.rows.num_pairs + first);
            add_chunk(a, tile, count, args.totals + r * kPanelOutputs);
        }
    }
}

float softmax_tile(float* s, int64_t num_visible, SoftmaxState& run) {
    float m = run.empty ? s[0] : run.m;
    for (int64_t j = 0; j < num_visible; ++j) m = reference::max_f32(m, s[j]);
    tile_weights(s, num_visible, m);
    const float sum = reference::sum_n4(s, kKvTile);
    for (int64_t j = 0; j < kKvTile; ++j) s[j] = reference::bf16_value(s[j]);
    const float decay = run.empty ? 0.0F : exp_f32(run.m - m);
    run.l = run.empty ? sum : fma_f32(run.l, decay, sum);
    run.m = m;
    return decay;
}

void attend_tile_portable(const AttendTileArgs& args, SoftmaxState& run) {
    float s[kKvTile] = {};
    for (int64_t group = 0; group * kGroup < args.tile->num_visible; ++group) {
        group_scores(args.q, args.tile->k[group], args.tile->k_stride, num_pairs(args.head_dim), args.scale,
                     s + group * kGroup);
    }
    const float decay = softmax_tile(s, args.tile->num_visible, run);
    tile_values(s, *args.tile, args.head_dim, args.pv);
    if (run.empty) {
        std::copy_n(args.pv, args.head_dim, run.o);
    } else {
        for (int64_t i = 0; i < args.head_dim; ++i) run.o[i] = fma_f32(run.o[i], decay, args.pv[i]);
    }
    run.empty = false;
}

void merge_run(const SoftmaxState& run, int64_t head_dim, SoftmaxState& row) {
    if (row.empty) {
        std::copy_n(run.o, head_dim, row.o);
        row.m = run.m;
        row.l = run.l;
        row.empty = false;
        return;
    }
    const float m = reference::max_f32(row.m, run.m);
    const float row_decay = exp_f32(row.m - m);
    const float run_decay = exp_f32(run.m - m);
    row.l = fma_f32(row.l, row_decay, run.l * run_decay);
    for (int64_t i = 0; i < head_dim; ++i) row.o[i] = fma_f32(row.o[i], row_decay, run.o[i] * run_decay);
    row.m = m;
}

// y serves as the total. Channels are independent of each other, so they are vectorised; n is in order.
VERBATIM_CLONES void scan_portable(const ScanArgs& args) {
    const int64_t width = args.head_dim;
    float* u = args.scratch;
    float* acc = u + width;
    for (int64_t t = 0; t < args.num_tokens; ++t) {
        const float* x = args.x + t * args.stride;
        const float* b = args.b + t * args.stride;
        const float* c = args.c + t * args.stride;
        float* y = args.y + t * args.y_stride;
        for (int64_t p = 0; p < width; ++p) u[p] = args.dt[t] * x[p];
        std::fill_n(y, width, 0.0F);
        for (int64_t first = 0; first < args.d_state; first += kScanChunk) {
            std::fill_n(acc, width, 0.0F);
            for (int64_t n = first; n < std::min(first + kScanChunk, args.d_state); ++n) {
                float* h = args.state + n * width;
                for (int64_t p = 0; p < width; ++p) {
                    h[p] = fma_f32(h[p], args.decay[t], u[p] * b[n]);
                    acc[p] = fma_f32(c[n], h[p], acc[p]);
                }
            }
            for (int64_t p = 0; p < width; ++p) y[p] += acc[p];
        }
        for (int64_t p = 0; p < width; ++p) y[p] = fma_f32(args.d, x[p], y[p]);
    }
}

}  // namespace verbatim::cpu
