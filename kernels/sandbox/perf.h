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

// The timed shapes: the file of --case, or up to three of published models, least work first.
Result<std::vector<KernelCase>> timed_cases(const KernelOptions& options, const Operation& operation);

// For a CUDA kernel on the emulator: its memory traffic, and nvcc's figures of its code.
KernelReport emulated_perf(const KernelOptions& options, const Operation& operation,
                           const std::vector<KernelCase>& timed, KernelSession& session, const KernelInfo& kernel);

// `roofline` is `perf` of kernels that can be timed here: an error if all are for CUDA.
Result<KernelReports> perf_verb(const KernelOptions& options, const Operation& operation, KernelSession& session);
Result<KernelReports> roofline_verb(const KernelOptions& options, const Operation& operation, KernelSession& session);

}  // namespace verbatim::sandbox
