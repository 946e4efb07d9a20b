// reference/ops/gated_norm.h: the gate z between Mamba-2's scan and its out_proj, with or without a norm.
#pragma once

#include <cstdint>

#include "reference/model/model_config.h"
#include "reference/ops/rows.h"

namespace verbatim::reference {

// Per row, in place. The norm of a group of n = width / n_groups elements is rms_norm's formula:
// norm(v)[i] = (v[i] · (1 ÷ sqrt(sum_squares_n4(v over the group) ÷ n + eps))) · weight[i]; N4 counts i from the
// group's first element.
//   kGateOnly       y[i] = y[i] · silu(z[i])
//   kGateThenNorm   y = norm(y · silu(z))
//   kNormThenGate   y[i] = norm(y)[i] · silu(z[i])
struct GatedNormArgs {
    MambaGate gate = MambaGate::kGateThenNorm;
    int64_t n_groups = 1;           // divides the width
    ConstFloatRows z;               // [num_rows, d_inner]
    const float* weight = nullptr;  // [d_inner]; null for kGateOnly
    float eps = 0.0F;
    FloatRows y;  // [num_rows, d_inner]
};

void check(const GatedNormArgs& args);
void gated_norm(const GatedNormArgs& args);

}  // namespace verbatim::reference
