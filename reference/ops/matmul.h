// reference/ops/matmul.h: N3's dot product, and the matmul that is one such dot per output.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "reference/numerics/profile.h"
#include "reference/ops/rows.h"

namespace verbatim::reference {

// NUMERICS N3 over bf16 bits: the definition that every faster dot product is compared with:
//
//   total = +0
//   for each chunk of 256 in ascending order:
//     acc = +0
//     for each pair (2j, 2j+1) of the chunk in ascending j (an odd tail is padded with +0):
//       acc = fma(a[2j+1], b[2j+1], acc);  acc = fma(a[2j], b[2j], acc)
//     total = total + acc
float dot_n3(const uint16_t* a, const uint16_t* b, int64_t n);
float dot_n3_of_floats(const float* a, const float* b, int64_t n);  // in the same order; the values need not be bf16

// Per row m and output n, with K = x.width and N = out.width:
//   a[k]      = bf16(x[m][k] · in_multiplier)                 one multiplication, then the one rounding to bf16 (N2)
//   total     = dot_n3(a, weight[n]); in tensor.sm90: tensor_dot(a, weight[n])
//             reference/numerics/tensor_sm90.h
//   out[m][n] = total + bias[n]                               `total` itself without a bias
// in_multiplier = 1 leaves x as it is. The result is binary32 and is not rounded to bf16.
struct MatmulArgs {
    ConstFloatRows x;                  // [num_rows, K]
    const uint16_t* weight = nullptr;  // [N, K] row-major, bf16 bits as N2 leaves them
    const float* bias = nullptr;       // [N] or null
    float in_multiplier = 1.0F;
    Profile profile = Profile::kExact;  // or kTensorSm90
    FloatRows out;                      // [num_rows, N]; apart from x
};

void check(const MatmulArgs& args);
void matmul(const MatmulArgs& args);

// The loop that matmul() and reference/ops/quantised.h share: matmul()'s formula in the exact profile, over binary32
// weights, kDotOutputs outputs side by side.
inline constexpr int64_t kDotOutputs = 32;
struct TiledMatmul {
    ConstFloatRows x;             // [num_rows, K]
    const float* bias = nullptr;  // [N] or null
    float in_multiplier = 1.0F;
    FloatRows out;  // [num_rows, N]; apart from x
    // Writes columns [k, k + count) of outputs [n, n + kDotOutputs) to tile [count, kDotOutputs]; outputs from N on
    // keep the +0 that they have.
    std::function<void(int64_t n, int64_t k, int64_t count, float* tile)> read;
};
void tiled_matmul(const TiledMatmul& args);

}  // namespace verbatim::reference
