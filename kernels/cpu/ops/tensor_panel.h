// kernels/cpu/ops/tensor_panel.h: owns the matmul's inner loop in the profile tensor.sm90, for any processor.
#pragma once

#include "kernels/cpu/ops/cpu_ops.h"

namespace verbatim::cpu {

// out[r][lane] = tensor_dot(rows[r], the panel's output `lane`) + bias[lane]      reference/numerics/tensor_sm90.h
// Reads rows as pairs.
void tensor_panel(const PanelArgs& args);

}  // namespace verbatim::cpu
