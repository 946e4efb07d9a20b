// reference/ops/fp8_matmul.h: the matmul of the profile exact.fp8, W8A8 in FP8 as compressed-tensors and the fp8 format
// of Qwen and DeepSeek define it, with a stated order (docs/numerics.md).
#pragma once

#include <cstdint>

#include "reference/model/weights.h"
#include "reference/ops/rows.h"

namespace verbatim::reference {

// A row's activations in e4m3. Of each group (Fp8Sharing), and once for kRow:
//   v[k]   = x[k] · multiplier                    one multiplication, binary32, not rounded to bf16
//   scale  = max |v[k]| ÷ 448                     0: q = 0; or the recipe's static scale
//   q[k]   = e4m3(v[k] ÷ scale)                   round_to_e4m3() of the rounded quotient
// A group with NaN or infinity has a scale of NaN and q = 0.
struct Fp8RowArgs {
    const float* x = nullptr;               // [count]
    int64_t count = 0;                      // a multiple of 32
    RowFactors factors;                     // a static scale is positive and finite
    Fp8Sharing sharing = Fp8Sharing::kRow;  // not kNone
    float* values = nullptr;                // [count], q in binary32
    float* scales = nullptr;                // of the groups in order
};
void quantise_fp8_row(const Fp8RowArgs& args);

// Per row m and output n, over the groups of K in ascending order; q and s of the row, w the weights' e4m3 numbers, and
// t the scale of a group's first block of weights:
//   sum   = dot_n3(q, w) over the group's columns                     reference/ops/matmul.h; the products are exact
//   total = fma(t · s, sum, total)                                    from +0; t · s is rounded
//   out[m][n] = total + bias[n]                                       `total` itself without a bias
struct Fp8MatmulArgs {
    ConstFloatRows x;             // [num_rows, K]
    MatrixView weight;            // [N, K], in FP8_E4M3 with activations other than kNone
    const float* bias = nullptr;  // [N] or null
    float in_multiplier = 1.0F;
    FloatRows out;  // [num_rows, N]; apart from x
};
void check(const Fp8MatmulArgs& args);
void fp8_matmul(const Fp8MatmulArgs& args);

}  // namespace verbatim::reference
