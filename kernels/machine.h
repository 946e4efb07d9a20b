// kernels/machine.h: measures this machine's limits, which a benchmark's rows are compared with.
//
//   stream     bytes per second that `num_threads` threads read in parallel from a buffer of at least four times the
//              last-level cache, in huge pages where the system provides them
//   fma        operations per second of fused multiply-adds (two operations each) on the widest vectors, sixteen
//              independent accumulators in registers, no memory
//   dpbf16     the same of VDPBF16PS (four operations per lane); 0 where the processor has none
//
// Each is the best of several rounds: disturbances make a limit lower, never higher.
#pragma once

#include <cstddef>
#include <cstdint>

namespace verbatim {

struct MachineLimits {
    double stream_bytes_per_s = 0;
    double fma_flops = 0;
    double dpbf16_flops = 0;

    [[nodiscard]] double peak_flops() const { return fma_flops > dpbf16_flops ? fma_flops : dpbf16_flops; }
};
MachineLimits best_of(const MachineLimits& a, const MachineLimits& b);

// Of all last-level caches of the system's processors together, as the kernel lists them; the C library's value where
// it lists none. At least 32 MiB.
int64_t last_level_cache_bytes();

// Memory available without swapping; INT64_MAX where the system does not report it.
int64_t available_memory_bytes();
// Resident memory of this process; 0 where the system does not report it.
int64_t resident_bytes();

// Processor time of this process so far, all threads together, in seconds.
double processor_time_s();

// Owns the buffer that is read repeatedly; the constructor touches all of its pages.
class MachineProbe {
public:
    // A buffer of `buffer_bytes`, or, for 0, of four caches; at most a quarter of the free memory. REQUIRES:
    // num_threads > 0, buffer_bytes >= 0.
    explicit MachineProbe(int32_t num_threads, int64_t buffer_bytes = 0);
    ~MachineProbe();
    MachineProbe(const MachineProbe&) = delete;
    MachineProbe& operator=(const MachineProbe&) = delete;

    [[nodiscard]] int64_t buffer_bytes() const { return buffer_bytes_; }
    // The best of `num_rounds` of every measurement.
    MachineLimits measure(int32_t num_rounds);

private:
    double stream_round(bool prefetch);

    int32_t num_threads_;
    int64_t buffer_bytes_;
    std::byte* buffer_;
};

}  // namespace verbatim
