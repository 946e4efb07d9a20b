// tests/cuda_runtime/strict_runtime.h: owns what a process has of CUDA: a stand-in for the host side of its runtime,
// linked in place of cudart. Kernels do nothing. Whoever calls it is held to CUDA's rules (CUDA Runtime API; CUDA C++
// Programming Guide), and late is as late as they allow. What gpu_device.cu does not call is not here: a new call does
// not link until its rules are written.
//
//   R1  memory, streams and graphs are used while they are there, within their bounds, and given back once; the legacy
//       stream is not used
//   R2  a copy lands when its stream is waited for. Until then pinned memory stays as it is and where it is, and memory
//       that is not pinned is its owner's again after the next call: that one waits
//   R3  while a stream is captured launches are recorded, and nothing is allocated, given back or waited for, nor
//       copied (CUDA would record a copy: our graphs have none); a capture is ended
//   R4  a grid has up to 2^31 - 1 x 65535 x 65535 blocks, a block up to 1024 threads and 227 KiB of shared memory: what
//       the compiler knows of, read from the object, and what a launch asks for. Both together beyond 48 KiB have been
//       asked for that very kernel since the last reset; blocks that are to be there at once fit the device
//   R5  a failed kernel is told by the next call that waits, and from there on by every call until a reset; a reset
//       takes nothing away that somebody has still to give back
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
    int64_t fail_at_allocation = 0;  // it finds no memory, of the device or pinned
    int64_t fail_at_kernel = 0;      // it meets memory that nobody has; a graph's kernels count whenever it is launched
};
struct Counts {
    int64_t kernels = 0;     // that ran, those of graphs too
    int64_t dependents = 0;  // asked for as such, or recorded: they may begin before the kernels before them have ended
    int64_t cooperative = 0;  // likewise: their blocks are all there at once
    int64_t attributes = 0;   // of kernels, set
    int64_t waits = 0;
    int64_t resets = 0;
};

// All that the process before had is forgotten.
void begin_process(const Machine& machine = {});
// Breaches of R1..R5 since then, each with the name of the call.
[[nodiscard]] const std::vector<std::string>& violations();
// What nobody has given back.
[[nodiscard]] std::vector<std::string> left_behind();
[[nodiscard]] const Counts& counts();
// A kernel of nobody's object has so much shared memory that the compiler knows of.
void declare_kernel(const void* kernel, size_t static_shared_bytes);
// Of the kernels that are registered, how many have some.
[[nodiscard]] int64_t num_kernels_with_static_shared();

}  // namespace verbatim::cuda::strict_runtime
