// reference/ops/router.h: the router of a mixture of experts: a row's logits and the experts that they choose (NUMERICS
// N10).
#pragma once

#include <cstdint>

#include "reference/model/model_config.h"
#include "reference/ops/rows.h"

namespace verbatim::reference {

// Per row m and expert e, with K = x.width:
//   a[k]      = bf16(x[m][k])
//   out[m][e] = dot_n3(a, weight[e]), reference/ops/matmul.h, over binary32 weights
// The weights are binary32 as the checkpoint has them: weights stored in bf16 give dot_n3's bits. The order is N3's in
// every profile.
struct RouterArgs {
    ConstFloatRows x;               // [num_rows, K]
    const float* weight = nullptr;  // [n_experts, K] row-major
    FloatRows out;                  // [num_rows, n_experts]
};
void check(const RouterArgs& args);
void router(const RouterArgs& args);

// Per row, L its logits and b choice_bias:
//   kSigmoidBias:    s[e] = sigmoid(L[e])                        reference/numerics/math.h
//                    c[e] = s[e] + b[e]
//   kSoftmaxAll:     m = max of L; p[e] = exp(L[e] - m); s[e] = p[e] ÷ sum_n4(p); c = s
//   kSoftmaxChosen:  c[e] = L[e]
// With n_groups > 1 experts come in equal runs of ids. A group's score is a + b of its two greatest c, a the greater;
// the n_chosen_groups groups first by (score descending, number ascending) take part, the others do not.
// Chosen are the n_chosen experts first by (c descending, id ascending); a NaN comes after every number. Then, over the
// chosen in ascending id:
//   kSoftmaxChosen:  m = max of L; p[i] = exp(L[i] - m); w[i] = p[i] ÷ sum_n4(p)
//   the others:      w[i] = s[i]; if normalize: t = +0, t = t + w[i] in order, t = t + sum_epsilon, w[i] = w[i] ÷ t
//   all:             w[i] = w[i] · scale
// sum_epsilon and scale are rounded once to binary32.
// out[m] = the ids, ascending, as binary32; then their weights: [2 · n_chosen].
struct ChooseArgs {
    const MoeConfig* moe = nullptr;
    ConstFloatRows logits;               // [num_rows, n_experts]
    const float* choice_bias = nullptr;  // [n_experts] of kSigmoidBias, else null
    FloatRows out;                       // [num_rows, 2 · n_chosen]
};
void check(const ChooseArgs& args);
void choose(const ChooseArgs& args);

}  // namespace verbatim::reference
