// reference/ops/quantised.h: the matmul and the embedding lookup over weights in blocks (docs/numerics.md).
#pragma once

#include <cstddef>
#include <cstdint>

#include "reference/model/quantised_blocks.h"
#include "reference/ops/rows.h"

namespace verbatim::reference {

// A matrix in blocks: row r is format->row_bytes(columns) bytes from r times as many on.
struct BlockRows {
    const BlockFormat* format = nullptr;
    const std::byte* blocks = nullptr;

    // The values of row r. REQUIRES: values.size() is the number of columns.
    void read(int64_t r, std::span<float> values) const;
};

// Per row m and output n, with K = x.width and N = out.width:
//   a[k]      = bf16(x[m][k] · in_multiplier)                 one multiplication, then the one rounding to bf16 (N2)
//   w[k]      = the value of weight k of row n                binary32, by the format's formula
//   total     = dot_n3_of_floats(a, w)                        reference/ops/matmul.h
//   out[m][n] = total + bias[n]                               `total` itself without a bias
struct QuantisedMatmulArgs {
    ConstFloatRows x;             // [num_rows, K]
    BlockRows weight;             // [N, K]
    const float* bias = nullptr;  // [N] or null
    float in_multiplier = 1.0F;
    FloatRows out;  // [num_rows, N]; apart from x
};
void check(const QuantisedMatmulArgs& args);
void quantised_matmul(const QuantisedMatmulArgs& args);

// out[r][i] = table[tokens[r]][i] · multiplier                                          one multiplication, binary32
struct QuantisedEmbeddingArgs {
    const int32_t* tokens = nullptr;  // [out.num_rows], each in [0, vocab_size)
    BlockRows table;                  // [vocab_size, out.width]
    int64_t vocab_size = 0;
    float multiplier = 1.0F;
    FloatRows out;  // [num_rows, hidden_size]
};
void check(const QuantisedEmbeddingArgs& args);
void quantised_embedding(const QuantisedEmbeddingArgs& args);

}  // namespace verbatim::reference
