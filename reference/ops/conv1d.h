// reference/ops/conv1d.h: Mamba-2's causal depthwise convolution over time and its silu, for one sequence.
#pragma once

#include <cstdint>
#include <span>

#include "reference/ops/rows.h"
#include "reference/ops/state_snapshot.h"

namespace verbatim::reference {

// NUMERICS N6. Per token t and channel c, over taps j = 0 ... d_conv - 1 in ascending time:
//   acc = bias[c]                                     +0 without a bias
//   acc = fma(weight[c][j], input[t - (d_conv - 1) + j][c], acc)
//   out[t][c] = silu(acc)
// Inputs before the call's first token come from the window; before position 0 they are +0 and are multiplied like any
// other. The window is the last d_conv - 1 inputs, oldest first, in binary32 as they came.
struct Conv1dArgs {
    int64_t d_conv = 0;                        // taps, 2 ... 4
    ConstFloatRows x;                          // [num_tokens, conv_dim]
    const float* weight = nullptr;             // [conv_dim, d_conv], oldest tap first
    const float* bias = nullptr;               // [conv_dim] or null
    const float* window_in = nullptr;          // [d_conv - 1, conv_dim]; null: zeros
    float* window_out = nullptr;               // [d_conv - 1, conv_dim]; may be window_in
    std::span<const StateSnapshot> snapshots;  // windows; apart from window_in
    FloatRows out;                             // [num_tokens, conv_dim]; apart from x
};

void check(const Conv1dArgs& args);
void conv1d(const Conv1dArgs& args);

}  // namespace verbatim::reference
