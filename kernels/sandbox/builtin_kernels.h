// kernels/sandbox/builtin_kernels.h: owns the project's own kernels as kernels/sandbox/kernel.h sees them: what a file
// is compared with, and what every check runs over as well.
//
//   "reference"        reference/ops, the definition itself; one per operation and profile that has bits
//   "cpu.ISA"          kernels/cpu by instruction set, as far as this processor has it; "…:fast" in the fast profile
//   "cuda-emulated"    kernels/cuda, on the emulator that verbatim_run::device names
#pragma once

#include <string_view>
#include <vector>

#include "kernels/sandbox/kernel.h"

namespace verbatim::sandbox {

// In the order above, by operation. They live as long as the program.
const std::vector<const verbatim_kernel*>& builtin_kernels();

// The definition of an operation in a profile; null where it has none (fast: null).
const verbatim_kernel* reference_kernel(std::string_view operation, std::string_view profile);

}  // namespace verbatim::sandbox
