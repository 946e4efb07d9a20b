// kernels/cpu/multiply_panel.h: rounded rows by one panel of a packed matrix, into the panel's columns: what every
// matmul of the CPU is made of.
#pragma once

#include <cstdint>

#include "kernels/cpu/ops/cpu_ops.h"
#include "kernels/packed_matrix.h"
#include "kernels/pair.h"
#include "reference/ops/rows.h"

namespace verbatim::cpu {

// The form in which the loop takes so many rows by this matrix.
RowForm row_form(const MatmulLoop& loop, const PackedMatrix& matrix, int64_t num_rows);

// The form's memory as rows of it.
RoundedRows rounded_in(RowForm form, float* floats, Pair* pairs, int64_t num_rows, int64_t num_pairs);

// `count` columns from `first_column` on of a band of x. REQUIRES: a form with bands; a band begins at first_row.
void round_band(const RowOps& ops, RowForm form, reference::ConstFloatRows x, float multiplier, int64_t first_row,
                int64_t first_column, int64_t count, float* floats, Pair* pairs);

// Row r of x alone. REQUIRES: a form without bands.
void round_row(const RowOps& ops, RowForm form, reference::ConstFloatRows x, float multiplier, int64_t r, float* floats,
               Pair* pairs);

// The rows in a form, by one thread, into `floats` or, if the form holds pairs, into `pairs`: both have room for
// kMaxBandRows rows beyond x's.
RoundedRows round_rows(const RowOps& ops, RowForm form, reference::ConstFloatRows x, float multiplier, float* floats,
                       Pair* pairs);

// `y` has the rows of x and the matrix's columns. `widened` holds a panel's pairs for int8 weights. REQUIRES: up to
// kMatmulRows rows, in row_form's form.
void multiply_panel(const MatmulLoop& loop, const PackedMatrix& matrix, const float* bias, const RoundedRows& x,
                    int64_t panel, Pair* widened, reference::FloatRows y);

}  // namespace verbatim::cpu
