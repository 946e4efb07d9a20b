// reference/ops/rms_norm.h: root mean square norm (Zhang and Sennrich 2019), and N4's sum.
#pragma once

#include <cstdint>

#include "reference/numerics/constants.h"
#include "reference/ops/rows.h"

namespace verbatim::reference {

// NUMERICS N4. partial[j] = +0 for 64 partials; element i goes into partial[i mod 64] in ascending i; then
// partial[j] += partial[j + 32] for j < 32, and so with 16, 8, 4, 2, 1. The sum is partial[0].
//
//   sum_n4(x, n)           partial = partial + x[i]
//   sum_squares_n4(x, n)   partial = fma(x[i], x[i], partial)
float sum_n4(const float* x, int64_t n);
float sum_squares_n4(const float* x, int64_t n);

// Per row, n = width:
//   mean   = sum_squares_n4(x) ÷ float(n)                     a division
//   scale  = 1 ÷ sqrt(mean + eps)
//   out[i] = (x[i] · scale) · weight[i]                       two multiplications, in this order
// x and out may be the same rows.
struct RmsNormArgs {
    ConstFloatRows x;
    const float* weight = nullptr;  // [width]
    float eps = 0.0F;
    FloatRows out;
};

void check(const RmsNormArgs& args);
void rms_norm(const RmsNormArgs& args);

}  // namespace verbatim::reference
