// reference/ops/experts.h: the chosen experts of each row, combined, and the shared expert's branch (NUMERICS N10).
#pragma once

#include <cstdint>
#include <span>

#include "reference/model/weights.h"
#include "reference/numerics/profile.h"
#include "reference/ops/rows.h"

namespace verbatim::reference {

// Per row m: acc[j] = +0, then for each chosen expert e in ascending id, w its weight:
//   up     = matmul(x[m], up of e)                        reference/ops/matmul.h
//   up     = swiglu(matmul(x[m], gate of e), up)          reference/ops/elementwise.h, gate_multiplier 1
//            or relu_squared(up)
//   y      = matmul(up, down of e)
//   acc[j] = fma(w, y[j], acc[j])
// and out[m] = acc. A row depends on itself alone; only the chosen experts' weights are read.
struct ExpertsArgs {
    MlpKind kind = MlpKind::kGatedSilu;
    int64_t n_chosen = 0;
    ConstFloatRows x;                     // [num_rows, width]
    ConstFloatRows chosen;                // [num_rows, 2 · n_chosen], reference/ops/router.h
    std::span<const MlpWeights> weights;  // [n_experts]: gate and up [d_ff, width], down [width, d_ff], no biases
    Profile profile = Profile::kExact;
    FloatRows out;  // [num_rows, width], apart from x
};
void check(const ExpertsArgs& args);
void experts(const ExpertsArgs& args);

// Adds the shared expert's row to the routed ones:
//   branch[j] = routed[j] + branch[j]                          without a gate
//   branch[j] = fma(sigmoid(gate), branch[j], routed[j])       with one, the row's only element
struct AddRoutedArgs {
    ConstFloatRows routed;
    ConstFloatRows gate;  // [num_rows, 1]; width 0: none
    FloatRows branch;     // in place
};
void check(const AddRoutedArgs& args);
void add_routed(const AddRoutedArgs& args);

}  // namespace verbatim::reference
