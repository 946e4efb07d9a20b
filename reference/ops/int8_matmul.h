// reference/ops/int8_matmul.h: the matmul of the profile exact.int8 over weights in blocks of integers
// (docs/numerics.md): of GGUF's types in the manner of llama.cpp, of quantised checkpoints with a scale for each token.
#pragma once

#include <cstdint>

#include "reference/model/integer_blocks.h"
#include "reference/model/weights.h"
#include "reference/ops/rows.h"

namespace verbatim::reference {

// A row's activations, in blocks of 32 or 256 elements, which are the weights' blocks, or all of them under one scale:
//   v[k]   = x[k] · multiplier                                  one multiplication, binary32, not rounded to bf16
//   a      = max |v[k]| over the block or row
//   of 32:   e = a ÷ 127, scale = fp16(e), r = 1 ÷ e            scale = 0: q = 0
//   of 256:  r = 127 ÷ a, scale = 1 ÷ r                         a < 2^-100: scale = 0, q = 0
//   a row:   r = 127 ÷ a, scale = a ÷ 127                       a < 2^-100: scale = 0, q = 0
//   q[k]   = v[k] · r to the nearest integer, ties to even      −127 ... 127
// A block or row with NaN or infinity has a scale of NaN and q = 0.
struct Int8RowArgs {
    const float* x = nullptr;  // [count]
    int64_t count = 0;         // whole blocks; of 32 for a row
    float multiplier = 1.0F;
    Int8Sharing sharing = Int8Sharing::kBlocksOf32;
    int8_t* quants = nullptr;  // [count]
    float* scales = nullptr;   // [count / scale_columns(sharing)]; of a row all are equal
};
void quantise_row(const Int8RowArgs& args);

// Per row m and output n, over the blocks of K in chunks of kDotChunk columns. Of a block, w the weights' IntegerBlock,
// q and s the row's quants and scale:
//   I     = Σ over its runs j of w.scales[j] · Σ over j's k of w.quants[k] · q[k]      integers, exact in 32 bits
//   M     = Σ over its runs j of w.minima[j] · Σ over j's k of q[k]                    likewise
//   acc   = fma(w.scale · s, float(I), acc)                     from +0 in each chunk, blocks in ascending order;
//   acc   = fma(w.offset · s, float(M), acc)                    with minima alone;   float() rounds to nearest even
//   total = total + acc                                         from +0, chunks in ascending order
//   out[m][n] = total + bias[n]                                 `total` itself without a bias
struct Int8MatmulArgs {
    ConstFloatRows x;             // [num_rows, K]
    MatrixView weight;            // [N, K], in blocks of a type that find_integer_format knows
    const float* bias = nullptr;  // [N] or null
    float in_multiplier = 1.0F;
    FloatRows out;  // [num_rows, N]; apart from x
};
void check(const Int8MatmulArgs& args);
void int8_matmul(const Int8MatmulArgs& args);

}  // namespace verbatim::reference
