// kernels/sandbox/compile_cuda.h: owns compiling CUDA C++ as its authors write it for the emulator: the file and the
// headers that it includes from the same folder are translated (kernels/sandbox/cuda_source.h) and given to g++.
// ThreadSanitizer's part of the compiler calls kernels/sandbox/cuda/source.h before every access; its runtime is not
// linked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "kernels/sandbox/compile_kernel.h"
#include "kernels/sandbox/source_files.h"

namespace verbatim::sandbox {

// files: the file and its headers. Errors: what is not taken, in one line with its place, and g++'s. REQUIRES:
// is_cuda_source(text) of one of them.
Result<CompiledKernel> compile_cuda_source(const std::string& file, SourceFiles files,
                                           const std::vector<std::string>& extra_flags, const ScratchFolder& folder,
                                           uint64_t memory_bytes);

}  // namespace verbatim::sandbox
