// kernels/sandbox/choose_bounds.h: owns the fast profile's bounds of `choose` (top-k gating): ids are the definition's
// where their scores are further apart than the scores' errors, weights within an error analysis; a row whose choice
// lies within the errors has no bound, since another expert of nearly the same score is as good.
#pragma once

#include <vector>

#include "kernels/sandbox/operation.h"

namespace verbatim::sandbox {

// The binary64 model of the output: ids, then weights.
std::vector<std::vector<double>> choose_doubles(const AbiArgs& abi);
// Absolute bounds of it (kernels/sandbox/error_bounds.h).
std::vector<std::vector<double>> choose_bounds(const AbiArgs& abi, const std::vector<std::vector<double>>& models);

}  // namespace verbatim::sandbox
