// kernels/cpu/ops/rounding.h: rows on their way into a matmul: multiplied once, rounded to bf16 (NUMERICS N2),
// padded with +0 to whole pairs.
#pragma once

#include <cstdint>

#include "kernels/cpu/pair.h"

namespace verbatim::cpu {

// out[k] = bf16(x[k] · multiplier) as binary32, [2 · num_pairs(count)].
void round_to_floats(const float* x, int64_t count, float multiplier, float* out);
// The same values as pairs, [num_pairs(count)].
void round_to_pairs(const float* x, int64_t count, float multiplier, Pair* out);

}  // namespace verbatim::cpu
