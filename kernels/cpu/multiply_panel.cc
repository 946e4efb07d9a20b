#include "kernels/cpu/multiply_panel.h"

namespace verbatim::cpu {

static_assert(kMatmulRows % kWideBands.rows == 0 && kMatmulRows % kNarrowBands.rows == 0);

namespace {

// Whether a loop of its own reads the int8 weights as they are: it takes rows one by one, never in bands.
bool reads_int8(const CpuOps& ops, const PackedMatrix& matrix, int64_t num_rows) {
    return matrix.is_int8() && ops.panel_int8 != nullptr && num_rows <= MatmulChoice::kFewRows;
}

}  // namespace

RowForm row_form(const MatmulLoop& loop, const PackedMatrix& matrix, int64_t num_rows) {
    const RowForm one_by_one = loop.ops->takes_pairs ? RowForm::kPairs : RowForm::kFloats;
    return reads_int8(*loop.ops, matrix, num_rows) ? one_by_one : loop.form();
}

void multiply_panel(const MatmulLoop& loop, const PackedMatrix& matrix, const float* bias, const RoundedRows& x,
                    int64_t panel, Pair* widened, reference::FloatRows y) {
    const CpuOps& ops = *loop.ops;
    const int64_t first = panel * kPanelOutputs;
    const int64_t count = matrix.outputs_in(panel);
    if (count == kPanelOutputs && !matrix.is_int8()) {
        loop.run({.rows = x,
                  .panel = matrix.panel(panel),
                  .bias = bias != nullptr ? bias + first : nullptr,
                  .out = y.data + first,
                  .out_stride = y.stride});
        return;
    }
    alignas(64) float out[kMatmulRows * kPanelOutputs];
    PanelArgs args{.rows = x, .out = out};
    const bool directly = x.bands == nullptr && reads_int8(ops, matrix, x.num_rows);
    if (!matrix.is_int8()) args.panel = matrix.panel(panel);
    if (directly) args.int8_panel = matrix.int8_panel(panel);
    if (matrix.is_int8() && !directly) {
        ops.rows->widen_int8(matrix.int8_panel(panel), matrix.panel_pairs(), widened);
        args.panel = widened;
    }
    directly ? ops.panel_int8(args) : loop.run(args);
    for (int64_t r = 0; r < y.num_rows; ++r) {
        const float* total = out + r * kPanelOutputs;
        float* to = y.row(r) + first;
        for (int64_t i = 0; i < count; ++i) {
            const float scaled = matrix.is_int8() ? total[i] * matrix.scales(panel)[i] : total[i];
            to[i] = bias != nullptr ? scaled + bias[first + i] : scaled;
        }
    }
}

}  // namespace verbatim::cpu
