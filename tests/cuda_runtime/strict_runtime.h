// tests/cuda_runtime/strict_runtime.h: owns a process's CUDA state: a replacement for the host side of the CUDA
// runtime, linked instead of cudart. Kernels do nothing. It checks its callers against CUDA's rules (CUDA Runtime API;
// CUDA C++ Programming Guide), and completes work as late as they allow. It has only the functions that gpu_device.cu
// calls: a new call does not link until its rules are written.
//
//   R1  memory, streams and graphs are used during their lifetime, within their bounds, and released once; the legacy
//       stream is not used
//   R2  a copy completes when its stream is synchronised. Until then pinned memory stays unchanged and allocated;
//       memory that is not pinned may be reused after the next call, since that one waits
//   R3  during a stream's capture launches are recorded, and no call allocates, releases, waits or copies (CUDA would
//       record a copy: these graphs have none); a capture is ended
//   R4  a grid has up to 2^31 - 1 x 65535 x 65535 blocks, a block up to 1024 threads and 227 KiB of shared memory: the
//       static part, read from the object, and the launch's dynamic part. More than 48 KiB together requires the
//       kernel's attribute since the last reset; the blocks of a cooperative launch fit the device
//   R5  a kernel's failure is reported by the next call that waits, and by every later call until a reset; a reset does
//       not release objects that the caller has yet to release
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace verbatim::cuda::strict_runtime {

struct Machine {
    int32_t num_processors = 132;  // an H200's
    int32_t major = 9;             // compute capability
    bool launches_wait = false;    // CUDA_LAUNCH_BLOCKING=1
    // Counted from 1; 0: never.
    int64_t fail_at_allocation = 0;  // it fails with out of memory, of the device or pinned
    int64_t fail_at_kernel = 0;      // it accesses unallocated memory; a graph's kernels count at each launch
};
struct Counts {
    int64_t kernels = 0;      // that ran, including those of graphs
    int64_t dependents = 0;   // launched or recorded with programmatic dependent launch: they may start before earlier
                              // kernels have ended
    int64_t cooperative = 0;  // likewise: all of their blocks are resident at once
    int64_t attributes = 0;   // of kernels, number of calls that set one
    int64_t waits = 0;
    int64_t resets = 0;
};

// Forgets all state of the previous process.
void begin_process(const Machine& machine = {});
// Violations of R1..R5 since then, each with the name of the call.
[[nodiscard]] const std::vector<std::string>& violations();
// Objects that were not released.
[[nodiscard]] std::vector<std::string> left_behind();
[[nodiscard]] const Counts& counts();
// Declares the static shared memory of a kernel that no object contains.
void declare_kernel(const void* kernel, size_t static_shared_bytes);
// The number of registered kernels with static shared memory.
[[nodiscard]] int64_t num_kernels_with_static_shared();

}  // namespace verbatim::cuda::strict_runtime
