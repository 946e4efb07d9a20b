// kernels/cpu/ops/fast_math.h: owns exact_math.h's functions for the fast profile, which promises a tolerance, not
// bits.
#pragma once

#include "reference/numerics/math.h"

namespace verbatim::cpu {
namespace {
namespace loop_math {

// e^x with a relative error below 2e-6, x clamped to [-87, 88]: 2^n · (Taylor's 1 ... 1/5! of |r| < 0.35). NaN in, NaN
// out.
inline float exp(float x) {
    const float above = x < -87.0F ? -87.0F : x;
    const float inside = above > 88.0F ? 88.0F : above;
    const float shifted = reference::fma_f32(inside, 0x1.715476p+0F, 0x1.8p+23F);
    const float r = reference::fma_f32(shifted - 0x1.8p+23F, -0x1.62e430p-1F, inside);
    float q = 1.0F / 120.0F;
    q = reference::fma_f32(q, r, 1.0F / 24.0F);
    q = reference::fma_f32(q, r, 1.0F / 6.0F);
    q = reference::fma_f32(q, r, 0.5F);
    q = reference::fma_f32(q, r, 1.0F);
    q = reference::fma_f32(q, r, 1.0F);
    return reference::float_from_bits(reference::bits_from_float(q) + (reference::bits_from_float(shifted) << 23));
}
// NaN of -infinity, as in the definition: exp's clamp would make it -infinity.
inline float silu(float x) {
    const float below = x < 0.0F ? x : 0.0F;
    return x / (1.0F + exp(-x)) + (below - below);
}
inline float sigmoid(float x) { return 1.0F / (1.0F + exp(-x)); }
inline float softplus(float x) { return reference::softplus_f32(x); }

}  // namespace loop_math
}  // namespace
}  // namespace verbatim::cpu
