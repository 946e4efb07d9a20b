#include "kernels/cpu/multiply_panel.h"

#include <algorithm>
#include <optional>

#include "kernels/cpu/block_runs.h"
#include "kernels/cpu/block_tile.h"
#include "kernels/cpu/int8_panels.h"
#include "reference/model/integer_blocks.h"

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

// Totals [rows, 64] of a panel in runs, of a few rows.
void multiply_runs(const CpuOps& ops, const PackedMatrix& matrix, const RoundedRows& x, int64_t panel, float* out) {
    const RunLayout& layout = *find_run_layout(*matrix.blocks().format);
    ops.run_panel({.x = x.floats,
                   .stride = 2 * x.num_pairs,
                   .num_rows = x.num_rows,
                   .layout = layout,
                   .panel = matrix.runs() + panel * layout.panel_bytes(matrix.num_k()),
                   .num_k = matrix.num_k(),
                   .out = out});
}

// Columns [k, k + count) of a panel in the layout of FloatChunkArgs.
void fill_tile_of(const CpuOps& ops, const PackedMatrix& matrix, int64_t panel, int64_t k, int64_t count, float* tile) {
    if (matrix.runs() == nullptr) return fill_tile(matrix.blocks(), panel, k, count, ops.float_lanes, tile);
    const RunLayout& layout = *find_run_layout(*matrix.blocks().format);
    const std::byte* runs =
        matrix.runs() + panel * layout.panel_bytes(matrix.num_k()) + k / layout.weights * layout.num_bytes();
    ops.run_tile({.layout = layout, .runs = runs, .num_k = count, .tile = tile});
}

// reference/ops/quantised.h: a few rows read the panel's runs; for more, or without runs, a chunk of the panel is
// dequantised once for all rows.
void multiply_blocks(const CpuOps& ops, const PackedMatrix& matrix, const float* bias, const RoundedRows& x,
                     int64_t panel, reference::FloatRows y) {
    alignas(64) float tile[kTileFloats];
    alignas(64) float out[kMatmulRows * kPanelOutputs];
    if (matrix.runs() != nullptr && x.num_rows <= ops.run_rows) {
        multiply_runs(ops, matrix, x, panel, out);
        return store_totals(out, nullptr, bias, y.width, y);
    }
    std::fill_n(out, x.num_rows * kPanelOutputs, 0.0F);
    for (int64_t k = 0; k < matrix.num_k(); k += reference::kDotChunk) {
        const int64_t count = std::min(reference::kDotChunk, matrix.num_k() - k);
        fill_tile_of(ops, matrix, panel, k, count, tile);
        ops.float_chunk({.x = x.floats + k,
                         .stride = 2 * x.num_pairs,
                         .num_rows = x.num_rows,
                         .weights = tile,
                         .num_pairs = count / 2,
                         .out = out});
    }
    store_totals(out, nullptr, bias, y.width, y);
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

}  // namespace

RowForm row_form(const MatmulLoop& loop, const PackedMatrix& matrix, int64_t num_rows) {
    if (matrix.int8_blocks() != nullptr)
        return int8_form(reference::find_integer_format(*matrix.blocks().format)->sharing);
    if (matrix.is_quantised()) return RowForm::kFloats;
    const RowForm one_by_one = loop.ops->takes_pairs ? RowForm::kPairs : RowForm::kFloats;
    return reads_int8(*loop.ops, matrix, num_rows) ? one_by_one : loop.form();
}

RoundedRows rounded_in(RowForm form, float* floats, Pair* pairs, int64_t num_rows, int64_t num_pairs) {
    RoundedRows rows{.num_rows = num_rows, .num_pairs = num_pairs};
    switch (form) {
        case RowForm::kFloats: rows.floats = floats; break;
        case RowForm::kPairs: rows.pairs = pairs; break;
        case RowForm::kPairBands: rows.pair_bands = pairs; break;
        case RowForm::kWideBands:
        case RowForm::kNarrowBands: rows.bands = floats; break;
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

void round_row(const RowOps& ops, RowForm form, reference::ConstFloatRows x, float multiplier, int64_t r, float* floats,
               Pair* pairs) {
    if (holds_int8(form)) return quantise_row(ops, form, x, multiplier, r, floats);
    const int64_t begin = r * num_pairs(x.width);
    holds_pairs(form) ? ops.round_to_pairs(x.row(r), x.width, multiplier, pairs + begin)
                      : ops.round_to_floats(x.row(r), x.width, multiplier, floats + 2 * begin);
}

RoundedRows round_rows(const RowOps& ops, RowForm form, reference::ConstFloatRows x, float multiplier, float* floats,
                       Pair* pairs) {
    if (const std::optional<BandShape> shape = bands_of(form)) {
        shape->for_each_band(x.num_rows, [&](int64_t first, int64_t) {
            round_band(ops, form, x, multiplier, first, 0, x.width, floats, pairs);
        });
    } else {
        for (int64_t r = 0; r < x.num_rows; ++r) round_row(ops, form, x, multiplier, r, floats, pairs);
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
