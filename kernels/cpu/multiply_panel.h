// kernels/cpu/multiply_panel.h: owns the product of rounded rows and one panel of a packed matrix, of which all matmuls
// of the CPU consist.
#pragma once

#include <cstdint>

#include "kernels/cpu/ops/cpu_ops.h"
#include "kernels/packed_matrix.h"
#include "kernels/pair.h"
#include "reference/ops/rows.h"

namespace verbatim::cpu {

// The form that the loop reads for this number of rows and this matrix.
RowForm row_form(const MatmulLoop& loop, const PackedMatrix& matrix, int64_t num_rows);
// The factors of rows that the matrix multiplies.
reference::RowFactors row_factors(const PackedMatrix& matrix, float multiplier);

// A view of memory in the given form.
RoundedRows rounded_in(RowForm form, float* floats, Pair* pairs, int64_t num_rows, int64_t num_pairs);

// Rounds `count` columns from `first_column` on of a band of x. REQUIRES: a form with bands; a band begins at
// first_row.
void round_band(const RowOps& ops, RowForm form, reference::ConstFloatRows x, float multiplier, int64_t first_row,
                int64_t first_column, int64_t count, float* floats, Pair* pairs);

// Rounds row r of x. REQUIRES: a form without bands.
void round_row(const RowOps& ops, RowForm form, reference::ConstFloatRows x, const reference::RowFactors& factors,
               int64_t r, float* floats, Pair* pairs);

// Rounds all rows on one thread into `floats` or, if the form holds pairs, into `pairs`; both have room for
// kMaxBandRows rows beyond x's. REQUIRES: in e4m3, at most kMatmulRows rows.
RoundedRows round_rows(const RowOps& ops, RowForm form, reference::ConstFloatRows x,
                       const reference::RowFactors& factors, float* floats, Pair* pairs);

// `y` has the rows of x and the matrix's columns. `widened` holds a panel's pairs for int8 weights. REQUIRES: at most
// kMatmulRows rows, in row_form's form.
void multiply_panel(const MatmulLoop& loop, const PackedMatrix& matrix, const float* bias, const RoundedRows& x,
                    int64_t panel, Pair* widened, reference::FloatRows y);

}  // namespace verbatim::cpu
