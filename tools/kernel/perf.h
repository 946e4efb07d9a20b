// tools/kernel/perf.h: owns the timing of kernels beside ours and beside what the machine can do, in one run.
#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"
#include "tools/bench/machine.h"
#include "tools/kernel/session.h"

namespace verbatim::tools {

// What the machine needs at least: for the bytes at its stream's rate, or for the operations at its peak.
double limit_seconds(const Operation& operation, const Work& work, const MachineLimits& limits);

// The shapes that are timed: the file of --case, or those of published models, least work first, up to three.
Result<std::vector<KernelCase>> timed_cases(const KernelOptions& options, const Operation& operation);

// Of a CUDA kernel, on the emulator: what its accesses move, and what nvcc says of its code.
KernelReport emulated_perf(const KernelOptions& options, const Operation& operation,
                           const std::vector<KernelCase>& timed, KernelSession& session, const KernelInfo& kernel);

// A picture of the rows' places below the machine's roof, both axes logarithmic.
std::string roofline_svg(const KernelReports& reports, const MachineLimits& limits);

Result<KernelReports> perf_verb(const KernelOptions& options, const Operation& operation, KernelSession& session);
Result<KernelReports> roofline_verb(const KernelOptions& options, const Operation& operation, KernelSession& session);

}  // namespace verbatim::tools
