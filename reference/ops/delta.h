// reference/ops/delta.h: the operations of a gated delta net (Yang, Kautz and Hatamizadeh 2024): its gates, normalised
// keys and queries, and the recurrence, one token after another.
#pragma once

#include <cstdint>
#include <span>

#include "reference/ops/rows.h"
#include "reference/ops/state_snapshot.h"

namespace verbatim::reference {

// NUMERICS N11. Per row and value head, in place:
//   b[h] = sigmoid(b[h])                                             beta
//   a[h] = exp(softplus(a[h] + dt_bias[h]) · rate[h])                decay; numerics/math.h
struct DeltaGatesArgs {
    const float* rate = nullptr;     // [n_value_heads], decay_rates of A_log: −exp(A_log)
    const float* dt_bias = nullptr;  // [n_value_heads]
    FloatRows b;                     // [num_rows, n_value_heads]
    FloatRows a;                     // [num_rows, n_value_heads]
};
void check(const DeltaGatesArgs& args);
void delta_gates(const DeltaGatesArgs& args);

// Per row and head, in place, n = dim:
//   root = sqrt(sum_squares_n4(x of the head) + kL2Eps)              reference/ops/rms_norm.h, numerics/constants.h
//   x[i] = (x[i] ÷ root) · scale
struct L2NormArgs {
    int64_t n_heads = 0;
    int64_t dim = 0;
    float scale = 1.0F;
    FloatRows x;  // [num_rows, n_heads · dim]
};
void check(const L2NormArgs& args);
void l2_norm(const L2NormArgs& args);

// NUMERICS N11. Per token t in order and value head h (its key head is h ÷ (n_value_heads / n_key_heads), with
// tiled_values h mod n_key_heads), with S [key_dim, value_dim] of the head; per column j:
//   u = +0; ascending i: u = fma(decay · S[i][j], k[i], u)
//   d = beta · (v[j] − u)
//   o = +0; ascending i: S[i][j] = fma(k[i], d, decay · S[i][j]), o = fma(S[i][j], q[i], o)
//   y[t][h][j] = o
// S after n tokens does not depend on how calls divide them.
struct DeltaUpdateArgs {
    int64_t n_key_heads = 0;
    int64_t n_value_heads = 0;  // a multiple of n_key_heads
    int64_t key_dim = 0;
    int64_t value_dim = 0;
    bool tiled_values = false;                 // value head j reads key head j mod n_key_heads
    ConstFloatRows q, k;                       // [num_tokens, n_key_heads · key_dim], after l2_norm
    ConstFloatRows v;                          // [num_tokens, n_value_heads · value_dim]
    ConstFloatRows beta, decay;                // [num_tokens, n_value_heads]
    const float* state_in = nullptr;           // [n_value_heads, key_dim, value_dim]; null: zeros
    float* state_out = nullptr;                // [n_value_heads, key_dim, value_dim]; may be state_in
    std::span<const StateSnapshot> snapshots;  // apart from state_in and state_out
    FloatRows y;                               // [num_tokens, n_value_heads · value_dim]; apart from q, k and v
};
void check(const DeltaUpdateArgs& args);
void delta_update(const DeltaUpdateArgs& args);

}  // namespace verbatim::reference
