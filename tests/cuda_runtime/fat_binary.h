// tests/cuda_runtime/fat_binary.h: owns reading nvcc's data in an object: the machine code of each architecture,
// consecutive ELF files, and their kernels' properties.
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace verbatim::cuda::strict_runtime {

// Bytes of static shared memory by a kernel's mangled name; the maximum over the architectures. `registered`: the
// argument of __cudaRegisterFatBinary. Kernels without any are omitted, and so is compressed code.
std::map<std::string, size_t> static_shared_of(const void* registered);

}  // namespace verbatim::cuda::strict_runtime
