// reference/ops/elementwise.h: scaling, the residual stream, the MLP's activations, and the scaling of logits (NUMERICS
// N9).
#pragma once

#include <cstdint>

#include "reference/ops/rows.h"

namespace verbatim::reference {

// x[i] = x[i] · multiplier, in place. (Falcon-H1's key_multiplier and ssm_multipliers, applied after the bias.)
struct ScaleArgs {
    FloatRows x;
    float multiplier = 1.0F;
};
void check(const ScaleArgs& args);
void scale(const ScaleArgs& args);

// residual[i] = fma(branch[i] · branch_multiplier, residual_multiplier, residual[i])
// One multiplication, then one fma: with both multipliers 1 it is residual + branch. Where a layer has two mixers,
// Mamba's output is added first, then attention's, each by this formula.
struct AddBranchArgs {
    ConstFloatRows branch;
    float branch_multiplier = 1.0F;    // the mixer's or MLP's out_multiplier
    float residual_multiplier = 1.0F;  // the model's
    FloatRows residual;
};
void check(const AddBranchArgs& args);
void add_branch(const AddBranchArgs& args);

// up[i] = up[i] · silu(gate[i] · gate_multiplier), silu(v) = v ÷ (1 + exp(-v)) (numerics/math.h); in place.
struct SwigluArgs {
    ConstFloatRows gate;
    float gate_multiplier = 1.0F;
    FloatRows up;
};
void check(const SwigluArgs& args);
void swiglu(const SwigluArgs& args);

// x[i] = x[i] · sigmoid(gate[i]), sigmoid(v) = 1 ÷ (1 + exp(-v)) (numerics/math.h); in place.
struct SigmoidGateArgs {
    ConstFloatRows gate;
    FloatRows x;
};
void check(const SigmoidGateArgs& args);
void sigmoid_gate(const SigmoidGateArgs& args);

// r = up[i] > 0 ? up[i] : +0 (NaN stays NaN);  up[i] = r · r; in place.
struct ReluSquaredArgs {
    FloatRows up;
};
void check(const ReluSquaredArgs& args);
void relu_squared(const ReluSquaredArgs& args);

// logits[i] = (logits[i] · multiplier) ÷ divisor, in place; either is 1 where a family lacks it.
struct ScaleLogitsArgs {
    FloatRows logits;
    float multiplier = 1.0F;
    float divisor = 1.0F;
};
void check(const ScaleLogitsArgs& args);
void scale_logits(const ScaleLogitsArgs& args);

}  // namespace verbatim::reference
