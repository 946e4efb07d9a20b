// kernels/sandbox/cuda_source.h: owns the translation of CUDA C++ as its authors write it to what g++ compiles for the
// emulator (kernels/sandbox/cuda/source.h). Only the text that is no C++ changes, and no line moves:
//
//   kernel<T, 8><<<grid, block, bytes, stream>>>(...)     a launcher, called with the arguments
//   __shared__ float sums[32];                            a static array, which the block shares
//   extern __shared__ float sums[];                       the launch's dynamic shared memory
//   __device__ int counter;                               a static variable that the emulator knows
//   asm volatile("..." : "=r"(x) : "r"(y));               a call that runs the PTX (kernels/sandbox/inline_ptx.h)
#pragma once

#include <string>
#include <string_view>

#include "engine/base/result.h"

namespace verbatim::sandbox {

// The text with spaces instead of comments and of the contents of literals: every place stays where it is.
std::string code_of(std::string_view text);

// Whether the text has __global__ functions, in code.
bool is_cuda_source(std::string_view text);

// The translated text. Errors name the file and the line, and what is not taken: PTX instructions beyond
// kernels/simt/ptx_instructions.cc, textures, calls of CUDA's runtime and of libraries that source.h does not have.
Result<std::string> translate_cuda(const std::string& path, std::string_view text);

}  // namespace verbatim::sandbox
