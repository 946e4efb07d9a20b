// kernels/simt/source_streams.h: owns CUDA's streams and events as CUDA source calls them on the emulator. Launches run
// in the order of the program; here is which of them a GPU may run at the same time.
//
//   T1  the launches of a stream are in order, and come behind all that the host has waited for
//   T2  an event has what was in its stream when it was recorded; a stream that waits for it comes behind that
//   T3  a launch without a stream comes behind all streams but non-blocking ones, and those behind it
//   T4  the call's stream (verbatim_run.device) and launches without a stream are one stream; when run() ends, all
//       launches have come to it or to the host
//
// No other header of the emulator is included (kernels/simt/source_threads.h says why).
#pragma once

#include <cstddef>

namespace verbatim::cuda_source {

enum class StreamKind : unsigned char { kBlocking, kNonBlocking };

// Handles, which stay valid in later calls of run(). Null is the stream of launches without one; a handle that is not
// from here is the call's stream.
[[nodiscard]] void* create_stream(StreamKind kind);
[[nodiscard]] void* create_event();
[[nodiscard]] void* stream_of_thread();  // cudaStreamPerThread
// False: no such stream or event, or it is destroyed, and found.
[[nodiscard]] bool destroy_stream(const void* stream);
[[nodiscard]] bool destroy_event(const void* event);
[[nodiscard]] bool record_event(const void* event, const void* stream);
[[nodiscard]] bool stream_waits(const void* stream, const void* event);
[[nodiscard]] bool host_waits_for_stream(const void* stream);
[[nodiscard]] bool host_waits_for_event(const void* event);
void host_waits_for_all();

// cudaMallocAsync, null without memory; cudaFreeAsync, false: memory was not allocated, or is free, and found. Launches
// that no event orders behind the one and before the other may not touch the memory.
[[nodiscard]] void* allocate_in_stream(size_t num_bytes, const void* stream, const char* call = "cudaMallocAsync");
[[nodiscard]] bool free_in_stream(const void* memory, const void* stream, const char* call = "cudaFreeAsync");
// cudaMalloc: all launches that follow may touch the memory. cudaFree: the host waits for all launches first.
[[nodiscard]] void* allocate_for_all(size_t num_bytes);
[[nodiscard]] bool free_behind_all(const void* memory);

}  // namespace verbatim::cuda_source
