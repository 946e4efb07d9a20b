// kernels/cpu/ops/exact_math.h: owns the functions that row_loops.h and softmax_loops.h call in the exact profile:
// those of reference/numerics/math.h, unchanged.
#pragma once

#include "reference/numerics/math.h"

namespace verbatim::cpu {
namespace {
namespace loop_math {

inline float exp(float x) { return reference::exp_f32(x); }
inline float silu(float x) { return reference::silu_f32(x); }
inline float sigmoid(float x) { return reference::sigmoid_f32(x); }
inline float softplus(float x) { return reference::softplus_f32(x); }

}  // namespace loop_math
}  // namespace
}  // namespace verbatim::cpu
