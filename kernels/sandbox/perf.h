// kernels/sandbox/perf.h: owns timing kernels against the builtin ones and against the machine's limits, in one run.
#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"
#include "kernels/machine.h"
#include "kernels/sandbox/session.h"

namespace verbatim::sandbox {

// The machine's lower bound: the bytes at the stream's rate, or the operations at the peak.
double limit_seconds(const Operation& operation, const Work& work, const MachineLimits& limits);

// Operations of a timed call at most: its outputs are compared with a definition that is slow.
inline constexpr double kMostFlopsOfCpu = 4e8, kMostFlopsOfGpu = 4e9;

// The timed shapes: the file of --case, or up to three of published models, least work first.
Result<std::vector<KernelCase>> timed_cases(const KernelOptions& options, const Operation& operation,
                                            double most_flops = kMostFlopsOfCpu);

// For a CUDA kernel on the emulator: adds its memory traffic, and nvcc's figures of its code. REQUIRES: it is emulated.
void add_emulated_perf(const KernelOptions& options, const Operation& operation, const std::vector<KernelCase>& timed,
                       KernelSession& session, const KernelInfo& kernel, KernelReport& report);

// `roofline` is `perf` of kernels that can be timed here: an error if all are for CUDA and no GPU runs them.
Result<KernelReports> perf_verb(const KernelOptions& options, const Operation& operation, KernelSession& session);
Result<KernelReports> roofline_verb(const KernelOptions& options, const Operation& operation, KernelSession& session);

}  // namespace verbatim::sandbox
