// tests/gpu/device_numerics.h: the numerics' arithmetic on a device, for arrays from the host. Errors are CUDA's texts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/tensor_fit.h"

namespace verbatim::cuda {

struct FloatTriple {
    float a, b, c;
};
// fma(a, b, c), bits.
std::string device_fma(const std::vector<FloatTriple>& in, std::vector<uint32_t>& out);

enum class UnaryFunction : uint8_t { kExp, kSilu, kSoftplus, kSqrt, kReciprocal };
// The binary32 with bits first, first + step, ..., `count` of them.
struct Inputs {
    uint32_t first, step, count;
};
// The function of each input; bits.
std::string device_unary(UnaryFunction function, const Inputs& inputs, std::vector<uint32_t>& out);

// One mma.sync m16n8k16 of each, bf16 with a binary32 accumulator.
std::string device_mma(const std::vector<TensorTile>& in, std::vector<TensorSums>& out);

}  // namespace verbatim::cuda
