// kernels/sandbox/kernel_report.h: owns the results of the sandbox's verbs, for one kernel and for several.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/machine.h"
#include "kernels/sandbox/check.h"
#include "kernels/sandbox/invariance.h"
#include "kernels/simt/access_counter.h"
#include "reference/records/verdict.h"

namespace verbatim::sandbox {

// A shape's times and their bounds.
struct PerfRow {
    std::string shape;
    bool cold = false;
    int64_t num_calls = 0;
    double median_s = 0;
    bool is_known = false;         // the median, to 1 %
    double low_s = 0, high_s = 0;  // of the middle nine tenths
    Work work;
    double limit_s = 0;           // of this machine, in the same run
    double builtin_median_s = 0;  // 0: no builtin kernel
    bool right = true;            // the outputs were correct afterwards

    [[nodiscard]] double gbps() const { return work.bytes / median_s * 1e-9; }
    [[nodiscard]] double gflops() const { return work.flops / median_s * 1e-9; }
    [[nodiscard]] double of_limit() const { return limit_s / median_s; }
    [[nodiscard]] double of_builtin() const { return builtin_median_s / median_s; }
};

// The memory traffic of a CUDA kernel's accesses.
struct EmulatedRow {
    std::string shape;
    Work work;
    simt::AccessCounts counts;
    bool right = true;
    // Of all sectors moved to and from the device's memory.
    [[nodiscard]] int64_t moved_bytes() const { return 32 * (counts.loads.num_sectors + counts.stores.num_sectors); }
};

// The results of one verb for one kernel.
struct KernelReport {
    std::string op;
    std::string kernel;
    std::string profile;
    std::string machine;
    Verdict verdict = Verdict::kPass;
    int64_t cases = 0;
    int64_t unsupported = 0;
    std::optional<Failure> first_failure;
    std::optional<InvarianceResult> invariance;
    std::vector<PerfRow> perf;
    std::vector<EmulatedRow> emulated;
    std::vector<std::string> notes;  // of `race`: findings by line, and barriers without effect
    bool was_emulated = false;       // calls ran in the emulator
    std::string gpu;                 // the GPU on which calls ran: "sm_90 (NVIDIA H200)"; "": on none
    int64_t gpu_cases = 0;           // of the cases, those of the GPU
    std::string why_emulated;        // of a CUDA kernel: why its calls ran in the emulator alone; "": they did not

    // Whether the kernel keeps its promises. The fast profile promises no invariance.
    [[nodiscard]] bool passes() const { return outcome() == records::Verdict::kSame; }
    // The verdict in the three values of every verb. Not all compared: nothing was found, but a promised property, or
    // every case, was refused.
    [[nodiscard]] records::Verdict outcome() const;
};

struct KernelReports {
    std::string verb;
    std::vector<KernelReport> reports;
    bool is_list = false;  // of all kernels: JSON is a list, whatever their number
    uint64_t seed = 0;
    std::string command;               // of the compiler; empty: nothing was compiled
    std::vector<std::string> heading;  // of a table: the machine's limits
    MachineLimits limits;              // of `perf` and `roofline`

    [[nodiscard]] records::Verdict outcome() const;  // the worst one; without kernels: not all compared
};

}  // namespace verbatim::sandbox
