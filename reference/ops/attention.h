// reference/ops/attention.h: causal grouped-query attention of one sequence, tile by tile in a fixed order.
#pragma once

#include <cstdint>

#include "reference/numerics/profile.h"
#include "reference/ops/rows.h"

namespace verbatim::reference {

// out[r][i] = bf16(x[r][i]): K (after rotary) and V as the cache holds them.
struct StoreBf16Args {
    ConstFloatRows x;
    Rows<uint16_t> out;
};
void check(const StoreBf16Args& args);
void store_bf16(const StoreBf16Args& args);

// NUMERICS N5. Query row r is at absolute position p = first_position + r and sees KV positions 0 ... p. Query head h
// reads KV head h ÷ (n_heads / n_kv_heads). q is rounded to bf16 once, K and V are bf16.
//
// Tiles of 64 positions start at multiples of 64; runs of 8 tiles start at multiples of 512. For the tiles of a run in
// ascending order:
//   s[j]  = dot_n3(q, k[j]) · scale                            visible j of the tile
//   m'    = max over the visible s[j], from m (a run's first tile: from s[first]); NaN wins (numerics/math.h)
//   p[j]  = exp(s[j] - m'), masked: +0
//   sum   = sum_n4 over the tile's 64 unrounded p
//   pv[d] = dot_n3 over the tile's 64 positions of (bf16(p[j]), v[j][d]); masked v count as +0
//   a run's first tile:  l = sum;               o[d] = pv[d];                  m = m'
//   after it, a = exp(m - m'):  l = fma(l, a, sum);  o[d] = fma(o[d], a, pv[d]);  m = m'
// Runs are merged left to right; the first is copied; then, with (mr, lr, or) of the next run:
//   M = max(m, mr);  a = exp(m - M);  b = exp(mr - M)
//   l = fma(l, a, lr · b);  o[d] = fma(o[d], a, or[d] · b);  m = M
// Result: out[d] = o[d] ÷ l.
// In tensor.sm90 both dot_n3 are tensor_dot (numerics/tensor_sm90.h), all else is the same. Tiles without a visible
// position are not read, and nothing beyond position p is read.
struct AttentionArgs {
    int64_t first_position = 0;
    int64_t n_heads = 0;
    int64_t n_kv_heads = 0;  // divides n_heads
    int64_t head_dim = 0;
    float scale = 1.0F;
    Profile profile = Profile::kExact;  // or kTensorSm90
    ConstFloatRows q;                   // [num_rows, n_heads · head_dim], binary32
    Rows<const uint16_t> k, v;          // [first_position + num_rows, n_kv_heads · head_dim], bf16
    FloatRows out;                      // [num_rows, n_heads · head_dim]; apart from q
};

void check(const AttentionArgs& args);
void attention(const AttentionArgs& args);

}  // namespace verbatim::reference
