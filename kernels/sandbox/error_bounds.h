// kernels/sandbox/error_bounds.h: owns the fast profile's bounds: how far each output of a kernel may be from the
// binary64 model, by an error analysis of the operation (N. Higham, Accuracy and Stability of Numerical Algorithms,
// 2nd ed., chapters 3 and 4) that holds for sums in any order, in blocks or in one accumulator.
//
//   u = 2^-24, gamma_n = n u / (1 - n u): the relative error of n roundings
//   a sum of n products     gamma_n * sum of |products|
//   a norm of n elements    gamma_(n/2) of the root, and 8 roundings around it
//   silu(z), exp(z)         (10 + 1.5 |z|) u, which the GPUs' fast exp keeps, and |z| 2^-124 where it saturates
//   softmax                 exp(error of the scores) - 1 of each weight, and of their sum; 2^-9 for weights in bf16
//   a scan over T tokens    gamma_4T, and gamma_T times the sum of |dt A|, of the state and the output without signs;
//                           each with the error of dt, (12 + 2.5 |x|) u for a fast softplus of x
#pragma once

#include <vector>

#include "kernels/sandbox/operation.h"

namespace verbatim::sandbox {

// A kernel may have so many times the analysis' bound: tensor cores cut off where the analysis rounds, and align their
// addends to the largest one.
inline constexpr double kTimesAnalysis = 4;

// Absolute bounds of a contiguous call's outputs, as Operation::doubles lists them; infinity or NaN: no bound. Empty:
// the operation has no analysis. `models`: the result of doubles(). REQUIRES: values of before the call.
std::vector<std::vector<double>> error_bounds(const Operation& operation, const AbiArgs& abi,
                                              const std::vector<std::vector<double>>& models);
// The analysis in words: "gamma_K times the sum of |products|"; "" without one.
const char* bound_text(const Operation& operation);

}  // namespace verbatim::sandbox
