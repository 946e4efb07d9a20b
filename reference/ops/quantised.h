// reference/ops/quantised.h: the matmul and the embedding lookup over weights in blocks (docs/numerics.md).
#pragma once

#include <cstddef>
#include <cstdint>

#include "reference/model/weights.h"
#include "reference/numerics/profile.h"
#include "reference/ops/rows.h"

namespace verbatim::reference {

// Per row m and output n, with K = x.width and N = out.width:
//   a[k]      = bf16(x[m][k] · in_multiplier)                 one multiplication, then the one rounding to bf16 (N2)
//   w[k]      = the value of weight k of row n                binary32, by the format's formula
//   total     = dot_n3_of_floats(a, w)                        reference/ops/matmul.h
//   out[m][n] = total + bias[n]                               `total` itself without a bias
struct QuantisedMatmulArgs {
    ConstFloatRows x;             // [num_rows, K]
    MatrixView weight;            // [N, K], in blocks
    const float* bias = nullptr;  // [N] or null
    float in_multiplier = 1.0F;
    FloatRows out;  // [num_rows, N]; apart from x
};
void check(const QuantisedMatmulArgs& args);
void quantised_matmul(const QuantisedMatmulArgs& args);

// out[r][i] = table[tokens[r]][i] · multiplier                                          one multiplication, binary32
struct QuantisedEmbeddingArgs {
    const int32_t* tokens = nullptr;  // [out.num_rows], each in [0, vocab_size)
    MatrixView table;                 // [vocab_size, out.width], in blocks
    float multiplier = 1.0F;
    FloatRows out;  // [num_rows, hidden_size]
};
void check(const QuantisedEmbeddingArgs& args);
void quantised_embedding(const QuantisedEmbeddingArgs& args);

// The matmul of a weight of any kind in a profile: this file's, reference/ops/int8_matmul.h's in kExactInt8 for types
// with integers, reference/ops/fp8_matmul.h's in kExactFp8 for weights with FP8 activations, or
// reference/ops/matmul.h's. REQUIRES: takes_blocks(profile) for blocks.
struct LinearArgs {
    ConstFloatRows x;
    MatrixView weight;
    VectorView bias;  // empty: none
    float in_multiplier = 1.0F;
    Profile profile = Profile::kExact;
    FloatRows out;
};
void linear(const LinearArgs& args);

}  // namespace verbatim::reference
