// tests/cuda_runtime/fat_binary.h: owns what nvcc has put into an object: the machine code of each architecture, ELF
// files one behind the other, and what each says of its kernels.
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace verbatim::cuda::strict_runtime {

// Bytes of shared memory whose size the compiler knows, by a kernel's mangled name; the most of any architecture. Of
// what is passed to __cudaRegisterFatBinary. Kernels without any are not in it, nor is code that is compressed.
std::map<std::string, size_t> static_shared_of(const void* registered);

}  // namespace verbatim::cuda::strict_runtime
