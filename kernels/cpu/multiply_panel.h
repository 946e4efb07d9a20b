// kernels/cpu/multiply_panel.h: rounded rows by one panel of a packed matrix, into the panel's columns: what every
// matmul of the CPU is made of.
#pragma once

#include <cstdint>

#include "kernels/cpu/ops/cpu_ops.h"
#include "kernels/packed_matrix.h"
#include "kernels/pair.h"
#include "reference/ops/rows.h"

namespace verbatim::cpu {

inline constexpr int64_t kMatmulRows = 120;  // rows that share a panel's trip through the cache: whole bands, and tiles
                                             // of 6

// The form in which the loop takes so many rows by this matrix.
RowForm row_form(const MatmulLoop& loop, const PackedMatrix& matrix, int64_t num_rows);

// `y` has the rows of x and the matrix's columns. `widened` holds a panel's pairs for int8 weights. REQUIRES: up to
// kMatmulRows rows, in row_form's form.
void multiply_panel(const MatmulLoop& loop, const PackedMatrix& matrix, const float* bias, const RoundedRows& x,
                    int64_t panel, Pair* widened, reference::FloatRows y);

}  // namespace verbatim::cpu
