// reference/loader/fp4_tensors.h: matrices in float4 (e2m1) as blocks.
//
//   nvfp4   a scale in e4m3 for each 16 weights and one in F32 for the matrix: (scale ÷ global) · q in
//           compressed-tensors, (scale · global) · q in modelopt
//   mxfp4   a scale that is a power of two for each 32 weights: 2^(scale − 127) · q
// The first quotient or product is rounded once, and so is the product with q.
#pragma once

#include <string_view>

#include "engine/base/result.h"
#include "reference/loader/quantised_tensors.h"

namespace verbatim::reference {

// Whether the quants are pairs in bytes.
bool is_fp4(const QuantisedTensors& tensors);
// As to_blocks(), for it alone. REQUIRES: quants and scales; rows of whole blocks of 32. Errors: the recipe has no
// float4; a tensor is missing, misshaped or not known here; a global scale that is not positive and finite; a scale of
// mxfp4 that is NaN.
Result<MatrixView> fp4_to_blocks(const QuantisationConfig& config, const QuantisedTensors& tensors,
                                 std::string_view weight, int64_t rows, int64_t cols, WorkerPool& pool,
                                 WeightStorage& storage);

}  // namespace verbatim::reference
