// kernels/simt/source_memory.h: owns where CUDA source's device memory is (kernels/simt/source_threads.h),
// for the process that runs its kernels.
#pragma once

#include "kernels/simt/emulator.h"

namespace verbatim::simt {

// Bytes that nothing uses, before and behind each allocation.
inline constexpr size_t kSpareBytes = 4096;

// While it lives, CUDA source launches on this emulator.
class SourceDevice {
public:
    // Static memory: the library's, which kernels may write where it is shared arrays.
    SourceDevice(Emulator& emulator, const std::byte* static_begin, size_t static_bytes, int32_t num_multiprocessors);
    ~SourceDevice();
    SourceDevice(const SourceDevice&) = delete;
    SourceDevice& operator=(const SourceDevice&) = delete;

    // After run(): what it has left undone is found, or noted.
    void end_call();

    // Device memory of so many bytes, `shift` bytes after an aligned address.
    std::byte* allocate(size_t num_bytes, size_t cell_bytes, size_t shift);
};

}  // namespace verbatim::simt
