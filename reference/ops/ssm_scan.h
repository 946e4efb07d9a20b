// reference/ops/ssm_scan.h: Mamba-2's selective state space recurrence (Dao and Gu 2024), one token after another.
#pragma once

#include <cstdint>
#include <span>

#include "reference/ops/rows.h"
#include "reference/ops/state_snapshot.h"

namespace verbatim::reference {

// A, computed once at load: out[h] = -exp(a_log[h]).
void decay_rates(std::span<const float> a_log, std::span<float> out);

// NUMERICS N6. Per token t in order and head h (g = h ÷ (n_heads / n_groups); B, C are group g's):
//   dt    = softplus(dt_raw[t][h] + dt_bias[h])                      numerics/math.h
//   dt    = dt < dt_min ? dt_min : dt > dt_max ? dt_max : dt         NaN passes
//   decay = exp(dt · A[h])
//   per channel p:      u = dt · x[t][h][p]
//   per n:              H[n][p] = fma(H[n][p], decay, u · B[n])
//   per chunk of 16 n:  acc = +0; ascending n: acc = fma(C[n], H[n][p], acc); total = total + acc, from total = +0
//   y[t][h][p] = fma(D[h], x[t][h][p], total)
// H after n tokens does not depend on how calls divide them.
struct SsmScanArgs {
    int64_t n_heads = 0;
    int64_t head_dim = 0;
    int64_t d_state = 0;
    int64_t n_groups = 1;            // divides n_heads
    ConstFloatRows x;                // [num_tokens, n_heads · head_dim]
    ConstFloatRows b, c;             // [num_tokens, n_groups · d_state]
    ConstFloatRows dt;               // [num_tokens, n_heads], before bias and softplus
    const float* a = nullptr;        // [n_heads], decay_rates of A_log
    const float* d = nullptr;        // [n_heads]
    const float* dt_bias = nullptr;  // [n_heads]
    float dt_min = 0.0F;
    float dt_max = 0.0F;                       // infinity: no limit
    const float* state_in = nullptr;           // [n_heads, d_state, head_dim]; null: zeros
    float* state_out = nullptr;                // [n_heads, d_state, head_dim]; may be state_in
    std::span<const StateSnapshot> snapshots;  // apart from state_in and state_out
    FloatRows y;                               // [num_tokens, n_heads · head_dim]; apart from x
};

void check(const SsmScanArgs& args);
void ssm_scan(const SsmScanArgs& args);

}  // namespace verbatim::reference
