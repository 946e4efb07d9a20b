#include "kernels/cpu/multiply_panel.h"

#include <algorithm>
#include <optional>
#include <type_traits>

#include "engine/base/check.h"
#include "kernels/cpu/block_runs.h"
#include "kernels/cpu/block_tile.h"
#include "kernels/cpu/int8_panels.h"
#include "reference/model/integer_blocks.h"
#include "reference/model/scaled_blocks.h"

namespace verbatim::cpu {

namespace {

// Whether a loop reads the int8 weights directly: it takes single rows, not bands.
bool reads_int8(const CpuOps& ops, const PackedMatrix& matrix, int64_t num_rows) {
    return matrix.is_int8() && ops.panel_int8 != nullptr && num_rows <= MatmulChoice::kFewRows;
}

// Totals [rows, 64] of a panel to y's columns, scaled by `scales` if they are there, with their bias.
void store_totals(const float* out, const float* scales, const float* bias, int64_t count, reference::FloatRows y) {
    for (int64_t r = 0; r < y.num_rows; ++r) {
        const float* total = out + r * kPanelOutputs;
        for (int64_t i = 0; i < count; ++i) {
            const float scaled = scales != nullptr ? total[i] * scales[i] : total[i];
            y.row(r)[i] = bias != nullptr ? scaled + bias[i] : scaled;
        }
    }
}

// A panel of weights in blocks; `layout` is null where they are not in runs.
struct BlockPanel {
    const PackedMatrix& matrix;
    const RunLayout* layout;
    int64_t panel;

    // The runs from column `k` on, a run's first.
    [[nodiscard]] const std::byte* runs(int64_t k) const {
        return matrix.runs() + panel * layout->panel_bytes(matrix.num_k()) + layout->panel_bytes(k);
    }
};

// Columns [k, k + count) of a panel in the layout of FloatChunkArgs.
void fill_tile_of(const CpuOps& ops, const BlockPanel& of, int64_t k, int64_t count, float* tile) {
    if (of.layout == nullptr) return fill_tile(of.matrix.blocks(), of.panel, k, count, ops.float_lanes, tile);
    ops.run_tile({.layout = *of.layout, .runs = of.runs(k), .num_k = count, .tile = tile});
}

// out[r][lane] = dot_n3 over the first `num_columns` of `rows`, whose weights and pairs are set here: fill(k, count,
// tile) dequantises columns [k, k + count) of the panel, once for all rows.
template <typename Element, typename Fill>
void sum_chunks(ChunkRowsArgs<Element> rows, int64_t num_columns, void (*add)(const ChunkRowsArgs<Element>&),
                const Fill& fill) {
    constexpr int64_t kPerPair = std::is_same_v<Element, float> ? 2 : 1;
    alignas(64) Element tile[kTileFloats / 2 * kPerPair];
    rows.weights = tile;
    std::fill_n(rows.out, rows.num_rows * kPanelOutputs, 0.0F);
    for (int64_t k = 0; k < num_columns; k += reference::kDotChunk) {
        const int64_t count = std::min(reference::kDotChunk, num_columns - k);
        fill(k, count, tile);
        rows.num_pairs = count / 2;
        add(rows);
        rows.x += rows.num_pairs * kPerPair;
    }
}

// out[r][lane] = dot_n3 over columns [first, first + x.width) of a panel, which x has: a few rows read its runs.
void sum_columns(const CpuOps& ops, const BlockPanel& of, reference::ConstFloatRows x, int64_t first, float* out) {
    if (of.layout != nullptr && x.num_rows <= ops.run_rows)
        return ops.run_panel({.x = x.data,
                              .stride = x.stride,
                              .num_rows = x.num_rows,
                              .layout = *of.layout,
                              .panel = of.runs(first),
                              .num_k = x.width,
                              .out = out});
    sum_chunks<float>({.x = x.data, .stride = x.stride, .num_rows = x.num_rows, .out = out}, x.width, ops.float_chunk,
                      [&](int64_t k, int64_t count, float* tile) { fill_tile_of(ops, of, first + k, count, tile); });
}

// The same for rows of e4m3 numbers in pairs.
void sum_pairs(const CpuOps& ops, const BlockPanel& of, const RoundedRows& x, int64_t first, int64_t num_columns,
               float* out) {
    sum_chunks<Pair>(
        {.x = reinterpret_cast<const Pair*>(x.fp8) + first / 2,
         .stride = Fp8RowPlaces{2 * x.num_pairs}.stride(),
         .num_rows = x.num_rows,
         .out = out},
        num_columns, ops.pair_chunk, [&](int64_t k, int64_t count, Pair* tile) {
            ops.pair_tile({.layout = *of.layout, .runs = of.runs(first + k), .num_k = count, .tile = tile});
        });
}

// reference/ops/quantised.h
void multiply_blocks(const CpuOps& ops, const PackedMatrix& matrix, const float* bias, const RoundedRows& x,
                     int64_t panel, reference::FloatRows y) {
    const RunLayout* layout = matrix.runs() != nullptr ? find_run_layout(*matrix.blocks().format) : nullptr;
    alignas(64) float out[kMatmulRows * kPanelOutputs];
    sum_columns(ops, {matrix, layout, panel}, {x.floats, x.num_rows, matrix.num_k(), 2 * x.num_pairs}, 0, out);
    store_totals(out, nullptr, bias, y.width, y);
}

// reference/ops/fp8_matmul.h
void multiply_fp8(const CpuOps& ops, const PackedMatrix& matrix, const float* bias, const RoundedRows& x, int64_t panel,
                  reference::FloatRows y) {
    constexpr RunLayout kLayout{RunKind::kBareFloats, reference::kScaledWeights};
    const Fp8RowPlaces places{matrix.num_k()};
    const BlockPanel of{matrix, &kLayout, panel};
    const reference::ConstFloatRows values{x.fp8, x.num_rows, matrix.num_k(), places.stride()};
    const int64_t columns = reference::fp8_columns(matrix.blocks().activations, matrix.num_k());
    alignas(64) float sums[kMatmulRows * kPanelOutputs];
    alignas(64) float totals[kMatmulRows * kPanelOutputs];
    std::fill_n(totals, x.num_rows * kPanelOutputs, 0.0F);
    for (int64_t first = 0; first < matrix.num_k(); first += columns) {
        const int64_t count = std::min(columns, matrix.num_k() - first);
        x.fp8_in_pairs ? sum_pairs(ops, of, x, first, count, sums)
                       : sum_columns(ops, of, values.columns(first, count), first, sums);
        for (int64_t r = 0; r < x.num_rows; ++r)
            ops.rows->add_scaled({.weight_scales = reinterpret_cast<const float*>(of.runs(first)),
                                  .row_scale = values.row(r)[places.scales() + first / columns],
                                  .sums = sums + r * kPanelOutputs,
                                  .totals = totals + r * kPanelOutputs});
    }
    store_totals(totals, nullptr, bias, y.width, y);
}

// reference/ops/int8_matmul.h
void multiply_int8(const CpuOps& ops, const PackedMatrix& matrix, const float* bias, const RoundedRows& x,
                   int64_t panel, reference::FloatRows y) {
    const Int8Layout& layout = *find_int8_layout(*matrix.blocks().format);
    alignas(64) float out[kMatmulRows * kPanelOutputs];
    ops.int8_panel({.rows = x.int8,
                    .num_rows = x.num_rows,
                    .layout = layout,
                    .panel = matrix.int8_blocks() + panel * layout.panel_bytes(matrix.num_k()),
                    .num_k = matrix.num_k(),
                    .out = out});
    store_totals(out, nullptr, bias, y.width, y);
}

void quantise_row(const RowOps& ops, RowForm form, reference::ConstFloatRows x, float multiplier, int64_t r,
                  float* floats) {
    const Int8RowPlaces places{x.width};
    std::byte* row = reinterpret_cast<std::byte*>(floats) + r * places.stride();
    ops.quantise({.x = x.row(r),
                  .count = x.width,
                  .multiplier = multiplier,
                  .sharing = sharing_of(form),
                  .quants = reinterpret_cast<int8_t*>(row),
                  .scales = reinterpret_cast<float*>(row + places.scales()),
                  .sums = reinterpret_cast<int32_t*>(row + places.sums())});
}

void quantise_fp8_row(const RowOps& ops, RowForm form, reference::ConstFloatRows x,
                      const reference::RowFactors& factors, int64_t r, float* floats) {
    const Fp8RowPlaces places{x.width};
    float* row = floats + r * places.stride();
    const bool in_pairs = holds_fp8_pairs(form);
    ops.quantise_fp8({.x = x.row(r),
                      .count = x.width,
                      .factors = factors,
                      .sharing = fp8_sharing_of(form),
                      .values = in_pairs ? nullptr : row,
                      .pairs = in_pairs ? reinterpret_cast<Pair*>(row) : nullptr,
                      .scales = row + places.scales()});
}

}  // namespace

RowForm row_form(const MatmulLoop& loop, const PackedMatrix& matrix, int64_t num_rows) {
    if (matrix.is_fp8())
        return fp8_form(matrix.blocks().activations,
                        loop.ops->pair_chunk != nullptr && num_rows > MatmulChoice::kFewRows);
    if (matrix.int8_blocks() != nullptr)
        return int8_form(reference::find_integer_format(*matrix.blocks().format)->sharing);
    if (matrix.is_quantised()) return RowForm::kFloats;
    const RowForm one_by_one = loop.ops->takes_pairs ? RowForm::kPairs : RowForm::kFloats;
    return reads_int8(*loop.ops, matrix, num_rows) ? one_by_one : loop.form();
}

reference::RowFactors row_factors(const PackedMatrix& matrix, float multiplier) {
    return {multiplier, matrix.is_fp8() ? matrix.blocks().activation_scale : 0.0F};
}

RoundedRows rounded_in(RowForm form, float* floats, Pair* pairs, int64_t num_rows, int64_t num_pairs) {
    RoundedRows rows{.num_rows = num_rows, .num_pairs = num_pairs};
    switch (form) {
        case RowForm::kFloats: rows.floats = floats; break;
        case RowForm::kPairs: rows.pairs = pairs; break;
        case RowForm::kPairBands: rows.pair_bands = pairs; break;
        case RowForm::kWideBands:
        case RowForm::kNarrowBands: rows.bands = floats; break;
        case RowForm::kFp8OfGroups:
        case RowForm::kFp8OfRow:
        case RowForm::kFp8PairsOfGroups:
        case RowForm::kFp8PairsOfRow:
            rows.fp8 = floats;
            rows.fp8_in_pairs = holds_fp8_pairs(form);
            break;
        case RowForm::kInt8Of32:
        case RowForm::kInt8Of256:
        case RowForm::kInt8OfRow: rows.int8 = reinterpret_cast<const std::byte*>(floats); break;
    }
    return rows;
}

void round_band(const RowOps& ops, RowForm form, reference::ConstFloatRows x, float multiplier, int64_t first_row,
                int64_t first_column, int64_t count, float* floats, Pair* pairs) {
    const int64_t width = bands_of(form)->width(first_row, x.num_rows);
    const int64_t begin = first_row * 2 * num_pairs(x.width) + first_column * width;
    ops.round_to_band({.x = x.row(first_row) + first_column,
                       .stride = x.stride,
                       .num_rows = std::min(width, x.num_rows - first_row),
                       .count = count,
                       .multiplier = multiplier,
                       .width = width,
                       .out = holds_pairs(form) ? nullptr : floats + begin,
                       .pairs = holds_pairs(form) ? pairs + begin / 2 : nullptr});
}

void round_row(const RowOps& ops, RowForm form, reference::ConstFloatRows x, const reference::RowFactors& factors,
               int64_t r, float* floats, Pair* pairs) {
    if (holds_fp8(form)) return quantise_fp8_row(ops, form, x, factors, r, floats);
    if (holds_int8(form)) return quantise_row(ops, form, x, factors.multiplier, r, floats);
    const int64_t begin = r * num_pairs(x.width);
    holds_pairs(form) ? ops.round_to_pairs(x.row(r), x.width, factors.multiplier, pairs + begin)
                      : ops.round_to_floats(x.row(r), x.width, factors.multiplier, floats + 2 * begin);
}

RoundedRows round_rows(const RowOps& ops, RowForm form, reference::ConstFloatRows x,
                       const reference::RowFactors& factors, float* floats, Pair* pairs) {
    if (const std::optional<BandShape> shape = bands_of(form)) {
        shape->for_each_band(x.num_rows, [&](int64_t first, int64_t) {
            round_band(ops, form, x, factors.multiplier, first, 0, x.width, floats, pairs);
        });
    } else {
        // What rows in e4m3 need for their scales is less than the room for bands.
        static_assert(kMatmulRows <= kMaxBandRows * Fp8RowPlaces::kColumns);
        CHECK(!holds_fp8(form) || x.num_rows <= kMatmulRows, "{} rows", x.num_rows);
        for (int64_t r = 0; r < x.num_rows; ++r) round_row(ops, form, x, factors, r, floats, pairs);
    }
    return rounded_in(form, floats, pairs, x.num_rows, num_pairs(x.width));
}

void multiply_panel(const MatmulLoop& loop, const PackedMatrix& matrix, const float* bias, const RoundedRows& x,
                    int64_t panel, Pair* widened, reference::FloatRows y) {
    const CpuOps& ops = *loop.ops;
    const int64_t first = panel * kPanelOutputs;
    const int64_t count = matrix.outputs_in(panel);
    const float* panel_bias = bias != nullptr ? bias + first : nullptr;
    if (matrix.int8_blocks() != nullptr)
        return multiply_int8(ops, matrix, panel_bias, x, panel, y.columns(first, count));
    if (matrix.is_fp8()) return multiply_fp8(ops, matrix, panel_bias, x, panel, y.columns(first, count));
    if (matrix.is_quantised()) return multiply_blocks(ops, matrix, panel_bias, x, panel, y.columns(first, count));
    if (count == kPanelOutputs && !matrix.is_int8()) {
        loop.run({.rows = x,
                  .panel = matrix.panel(panel),
                  .bias = panel_bias,
                  .out = y.data + first,
                  .out_stride = y.stride});
        return;
    }
    alignas(64) float out[kMatmulRows * kPanelOutputs];
    PanelArgs args{.rows = x, .out = out};
    const bool directly = x.bands == nullptr && x.pair_bands == nullptr && reads_int8(ops, matrix, x.num_rows);
    if (!matrix.is_int8()) args.panel = matrix.panel(panel);
    if (directly) args.int8_panel = matrix.int8_panel(panel);
    if (matrix.is_int8() && !directly) {
        ops.rows->widen_int8(matrix.int8_panel(panel), matrix.panel_pairs(), widened);
        args.panel = widened;
    }
    directly ? ops.panel_int8(args) : loop.run(args);
    store_totals(out, matrix.is_int8() ? matrix.scales(panel) : nullptr, panel_bias, count, y.columns(first, count));
}

}  // namespace verbatim::cpu
