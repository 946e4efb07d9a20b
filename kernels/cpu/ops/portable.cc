// Plain loops whose lanes are outputs; the compiler vectorises them for the levels of VERBATIM_CLONES.
#include "kernels/cpu/ops/portable.h"

#include <algorithm>

#include "reference/numerics/host_device.h"

#include "kernels/cpu/ops/int8_panel.h"

#define VERBATIM_LOOP VERBATIM_CLONES
#include "kernels/cpu/ops/exact_math.h"
#include "kernels/cpu/ops/row_loops.h"
#include "kernels/cpu/ops/softmax_loops.h"

#include "reference/model/scaled_blocks.h"
#include "reference/numerics/bf16.h"
#include "reference/numerics/constants.h"
#include "reference/numerics/math.h"
#include "reference/numerics/tensor_lanes.h"

namespace verbatim::cpu {

using reference::exp_f32;
using reference::fma_f32;
using reference::kDotChunk;
using reference::kKvTile;
using reference::kScanChunk;

namespace {

constexpr int64_t kChunkPairs = kDotChunk / 2;
constexpr int64_t kWidth = 64;  // channels or dims per block

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

// pv[i] = dot_n3 of p and v over the visible positions: a masked position would add +0 · +0, which changes nothing.
VERBATIM_CLONES void tile_values(const float* p, const KvTileRefs& tile, int64_t num_visible, int64_t first,
                                 int64_t count, float* pv) {
    std::fill_n(pv, count, 0.0F);
    for (int64_t j = 0; 2 * j < num_visible; ++j) {
        const Pair* pairs = tile.v[j] + first;
        if (2 * j + 1 < num_visible) {
            for (int64_t i = 0; i < count; ++i) pv[i] = fma_f32(p[2 * j + 1], odd_of(pairs[i]), pv[i]);
        }
        for (int64_t i = 0; i < count; ++i) pv[i] = fma_f32(p[2 * j], even_of(pairs[i]), pv[i]);
    }
}

// Both in tensor.sm90.
VERBATIM_CLONES void tensor_group_scores(const float* q, const Pair* k, int64_t stride, int64_t count, float scale,
                                         float* s) {
    const auto element = [&](int64_t i, int64_t lane) {
        const Pair pair = k[i / 2 * stride + lane];
        return i % 2 == 0 ? even_of(pair) : odd_of(pair);
    };
    reference::tensor_dots<kGroup>(q, 2 * count, element, s);
    for (int64_t i = 0; i < kGroup; ++i) s[i] = s[i] * scale;
}

VERBATIM_CLONES void tensor_tile_values(const float* p, const KvTileRefs& tile, int64_t num_visible, int64_t first,
                                        int64_t count, float* pv) {
    const auto element = [&](int64_t j, int64_t lane) {
        if (lane >= count) return 0.0F;
        const Pair pair = tile.v[j / 2][first + lane];
        return j % 2 == 0 ? even_of(pair) : odd_of(pair);
    };
    float total[kWidth];
    reference::tensor_dots<kWidth>(p, num_visible, element, total);
    std::copy_n(total, count, pv);
}

VERBATIM_CLONES float softmax_row_portable(float* s, int32_t num_visible, bool first_of_run, float& m, float& l) {
    return softmax_row<PlainReductions>(s, num_visible, first_of_run, m, l);
}

void panel_portable(const PanelArgs& args) {
    static thread_local PanelTile tile;
    for (int64_t r = 0; r < args.rows.num_rows; ++r) std::fill_n(args.out + r * args.out_stride, kPanelOutputs, 0.0F);
    for (int64_t first = 0; first < args.rows.num_pairs; first += kChunkPairs) {
        const int64_t count = std::min(kChunkPairs, args.rows.num_pairs - first);
        unpack_chunk(args.panel + first * kPanelOutputs, count, tile);
        for (int64_t r = 0; r < args.rows.num_rows; ++r) {
            const float* a = args.rows.floats + 2 * (r * args.rows.num_pairs + first);
            add_chunk(a, tile, count, args.out + r * args.out_stride);
        }
    }
    if (args.bias == nullptr) return;
    for (int64_t r = 0; r < args.rows.num_rows; ++r) {
        float* out = args.out + r * args.out_stride;
        for (int64_t lane = 0; lane < kPanelOutputs; ++lane) out[lane] += args.bias[lane];
    }
}

VERBATIM_CLONES void float_chunk_portable(const FloatChunkArgs& args) {
    for (int64_t r = 0; r < args.num_rows; ++r) {
        const float* x = args.x + r * args.stride;
        float acc[kPanelOutputs] = {};
        for (int64_t j = 0; j < args.num_pairs; ++j) {
            const float* even = args.weights + j * 2 * kPanelOutputs;
            const float* odd = even + kPanelOutputs;
            for (int64_t lane = 0; lane < kPanelOutputs; ++lane)
                acc[lane] = fma_f32(x[2 * j + 1], odd[lane], acc[lane]);
            for (int64_t lane = 0; lane < kPanelOutputs; ++lane) acc[lane] = fma_f32(x[2 * j], even[lane], acc[lane]);
        }
        for (int64_t lane = 0; lane < kPanelOutputs; ++lane) args.out[r * kPanelOutputs + lane] += acc[lane];
    }
}

// The values of kPanelOutputs quants of a run's column.
VERBATIM_CLONES void run_column(const RunLayout& layout, const std::byte* run, int64_t k, float* values) {
    const auto* scales = reinterpret_cast<const float*>(run);
    const std::byte* quants = run + layout.quants_offset();
    const bool bytes = has_bytes(layout.kind);
    const std::byte* column = quants + (bytes ? k : k / 2) * kPanelOutputs;
    for (int64_t lane = 0; lane < kPanelOutputs; ++lane) {
        const auto byte = std::to_integer<uint8_t>(column[lane]);
        const int32_t integer = bytes ? static_cast<int8_t>(byte) : byte >> (k % 2 * 4) & 15;
        const float quant =
            has_e4m3(layout.kind) ? reference::e4m3_value(byte) : static_cast<float>(integer) + layout.first;
        values[lane] = layout.kind == RunKind::kBareFloats ? quant : scales[lane] * quant;
    }
    if (layout.kind != RunKind::kNibblesAndMinima) return;
    for (int64_t lane = 0; lane < kPanelOutputs; ++lane) values[lane] -= scales[kPanelOutputs + lane];
}

void run_tile_portable(const RunTileArgs& args) {
    for (int64_t k = 0; k < args.num_k; ++k)
        run_column(args.layout, args.runs + k / args.layout.weights * args.layout.num_bytes(), k % args.layout.weights,
                   args.tile + k * kPanelOutputs);
}

// One token, `width` channels from first_p on.
VERBATIM_CLONES void scan_token(const ScanArgs& args, int64_t t, const float* state_in, int64_t first_p,
                                int64_t width) {
    float u[kWidth], acc[kWidth], total[kWidth];
    const float* x = args.x + t * args.stride + first_p;
    const float* b = args.b + t * args.stride;
    const float* c = args.c + t * args.stride;
    const float decay = args.decay[t * args.dt_stride];
    for (int64_t p = 0; p < width; ++p) u[p] = args.dt[t * args.dt_stride] * x[p];
    std::fill_n(total, width, 0.0F);
    for (int64_t first = 0; first < args.d_state; first += kScanChunk) {
        std::fill_n(acc, width, 0.0F);
        for (int64_t n = first; n < std::min(first + kScanChunk, args.d_state); ++n) {
            const float* before = state_in + n * args.head_dim + first_p;
            float* h = args.state_out + n * args.head_dim + first_p;
            for (int64_t p = 0; p < width; ++p) {
                h[p] = fma_f32(before[p], decay, u[p] * b[n]);
                acc[p] = fma_f32(c[n], h[p], acc[p]);
            }
        }
        for (int64_t p = 0; p < width; ++p) total[p] += acc[p];
    }
    float* y = args.y + t * args.y_stride + first_p;
    for (int64_t p = 0; p < width; ++p) y[p] = fma_f32(args.d, x[p], total[p]);
}

// The dot products of a tile: for the positions of a K group, and for some dims of V.
struct ExactTile {
    static constexpr auto kScores = group_scores;
    static constexpr auto kValues = tile_values;
};
struct TensorTile {
    static constexpr auto kScores = tensor_group_scores;
    static constexpr auto kValues = tensor_tile_values;
};

template <typename Tile>
void attend_tile(const AttendTileArgs& args) {
    const int64_t pairs = args.q.num_pairs;
    for (int64_t row = 0; row < args.q.num_rows; ++row) {
        float p[kKvTile];
        float* s = args.s + row * kKvTile;
        const int64_t num_visible = args.visible(row);
        for (int64_t group = 0; group * kGroup < num_visible; ++group) {
            Tile::kScores(args.q.floats + row * 2 * pairs, args.tile->k[group], args.tile->k_stride, pairs, args.scale,
                          s + group * kGroup);
        }
        const float decay =
            softmax_row_portable(s, static_cast<int32_t>(num_visible), args.first_of_run, args.m[row], args.l[row]);
        round_to_floats(s, kKvTile, 1.0F, p);
        for (int64_t first = 0; first < args.head_dim; first += kWidth) {
            const int64_t count = std::min(kWidth, args.head_dim - first);
            float pv[kWidth];
            Tile::kValues(p, *args.tile, num_visible, first, count, pv);
            float* o = args.o + row * args.head_dim + first;
            for (int64_t i = 0; i < count; ++i) o[i] = args.first_of_run ? pv[i] : fma_f32(o[i], decay, pv[i]);
        }
    }
}

}  // namespace

void attend_tile_portable(const AttendTileArgs& args) { attend_tile<ExactTile>(args); }
void attend_tile_tensor(const AttendTileArgs& args) { attend_tile<TensorTile>(args); }

namespace {

// One token, `width` columns from first_j on.
VERBATIM_CLONES void delta_token(const DeltaArgs& args, int64_t t, const float* state_in, int64_t first_j,
                                 int64_t width) {
    float d[kWidth] = {};
    float o[kWidth] = {};
    const float* k = args.k + t * args.stride;
    const float* q = args.q + t * args.stride;
    const float* v = args.v + t * args.stride + first_j;
    const float decay = args.decay[t * args.gate_stride];
    for (int64_t i = 0; i < args.key_dim; ++i) {
        const float* before = state_in + i * args.value_dim + first_j;
        for (int64_t j = 0; j < width; ++j) d[j] = fma_f32(decay * before[j], k[i], d[j]);
    }
    for (int64_t j = 0; j < width; ++j) d[j] = args.beta[t * args.gate_stride] * (v[j] - d[j]);
    for (int64_t i = 0; i < args.key_dim; ++i) {
        const float* before = state_in + i * args.value_dim + first_j;
        float* s = args.state_out + i * args.value_dim + first_j;
        for (int64_t j = 0; j < width; ++j) {
            s[j] = fma_f32(k[i], d[j], decay * before[j]);
            o[j] = fma_f32(s[j], q[i], o[j]);
        }
    }
    std::copy_n(o, width, args.y + t * args.y_stride + first_j);
}

// A recurrence over rows of a state [num_rows, width]. Columns are independent and vectorised; rows are in order.
// `token` takes (args, t, state_in, first column, number of columns).
template <typename Args, typename Token>
bool recur(const Args& args, int64_t num_rows, int64_t width, const Token& token) {
    const int64_t size = num_rows * width;
    if (args.state_in == nullptr) {
        std::fill_n(args.state_out, size, 0.0F);
    } else if (args.num_tokens == 0 && args.state_in != args.state_out) {
        std::copy_n(args.state_in, size, args.state_out);
    }
    for (int64_t t = 0; t < args.num_tokens; ++t) {
        const float* state_in = t == 0 && args.state_in != nullptr ? args.state_in : args.state_out;
        for (int64_t first = 0; first < width; first += kWidth) {
            token(args, t, state_in, first, std::min(kWidth, width - first));
        }
    }
    return is_finite_row(args.state_out, size);
}

}  // namespace

bool scan_portable(const ScanArgs& args) { return recur(args, args.d_state, args.head_dim, scan_token); }
bool delta_portable(const DeltaArgs& args) { return recur(args, args.key_dim, args.value_dim, delta_token); }

const CpuOps kPortableOps{.isa = Isa::kPortable,
                          .takes_pairs = false,
                          .panel = panel_portable,
                          .float_chunk = float_chunk_portable,
                          .run_tile = run_tile_portable,
                          .int8_panel = int8_panel_portable,
                          .attend_tile = attend_tile_portable,
                          .merge_run = merge_run,
                          .scan = scan_portable,
                          .delta = delta_portable,
                          .rows = &kRowOps};

}  // namespace verbatim::cpu
