// kernels/sandbox/builtin_kernels.h: owns the project's kernels behind the interface of kernels/sandbox/kernel.h: a
// user's file is compared with them, and every check also runs over them.
//
//   "reference"        reference/ops, the definition; one per operation and profile that promises bits
//   "cpu.ISA"          kernels/cpu by instruction set, as supported by this processor; "…:fast" in the fast profile
//   "cuda-emulated"    kernels/cuda, on the emulator in verbatim_run::device
#pragma once

#include <string_view>
#include <vector>

#include "kernels/sandbox/kernel.h"

namespace verbatim::sandbox {

// In the order above, by operation. They live until the program ends.
const std::vector<const verbatim_kernel*>& builtin_kernels();

// The definition of an operation in a profile; null if there is none (fast: null).
const verbatim_kernel* reference_kernel(std::string_view operation, std::string_view profile);

}  // namespace verbatim::sandbox
