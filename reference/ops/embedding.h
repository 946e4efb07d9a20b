// reference/ops/embedding.h: the embedding lookup: tokens to rows of the residual stream.
#pragma once

#include <cstdint>

#include "reference/ops/rows.h"

namespace verbatim::reference {

// out[r][i] = float(table[tokens[r]][i]) · multiplier                                   one multiplication, binary32
//
// The table holds bf16 bits as NUMERICS N2 leaves them (weights.h, W2). A multiplier of 1 changes nothing.
struct EmbeddingArgs {
    const int32_t* tokens = nullptr;  // [out.num_rows], each in [0, vocab_size)
    const uint16_t* table = nullptr;  // [vocab_size, out.width], bf16
    int64_t vocab_size = 0;
    float multiplier = 1.0F;
    FloatRows out;  // [num_rows, hidden_size]
};

void check(const EmbeddingArgs& args);
void embedding(const EmbeddingArgs& args);

}  // namespace verbatim::reference
