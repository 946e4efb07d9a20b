// tools/kernel/check.h: owns which cases a kernel is tried on, how the first failure is made smaller, and the files
// that keep it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "tools/kernel/judge.h"
#include "tools/kernel/workload.h"

namespace verbatim::tools {

enum class Effort : uint8_t { kShort, kFull };

// Every size at each of its edges, every class of values in each placing, sizes by chance, shapes of published models
// (cut where they are too much work). Of a machine: the emulator gets little work at once.
std::vector<CheckCase> check_cases(const Operation& operation, const KernelInfo& kernel, Effort effort, uint64_t seed);
// Batches of several items, for `kernel invariance`.
std::vector<KernelCase> invariance_cases(const Operation& operation, const KernelInfo& kernel, Effort effort,
                                         uint64_t seed);

// Calls of a real run, beside the others, and how many of them are too large for this kernel's machine.
struct WorkloadCases {
    std::vector<CheckCase> cases;
    int64_t num_left_out = 0;
};
WorkloadCases workload_cases(const KernelInfo& kernel, Effort effort, const Workload& workload);

// The smallest case found that still fails; `fails` says how, empty: not at all, or in another way.
using Fails = std::function<std::optional<Failure>(const KernelCase& one)>;
Failure smallest_failure(const Operation& operation, const Failure& failure, const Fails& fails);

struct CheckResult {
    int64_t num_cases = 0;
    int64_t num_unsupported = 0;
    std::optional<Failure> failure;
};
// Until the first failure, which is made smaller.
CheckResult check_kernel(KernelHost& host, const KernelInfo& kernel, const Operation& operation,
                         const std::vector<CheckCase>& cases);

// A failure as a file that repeats it (`--case FILE`).
std::string case_file(const Operation& operation, const Failure& failure);
struct SavedCase {
    std::string operation;
    CheckCase check;
    std::string property;  // of `kernel invariance`
};
// A file with values (tools/kernel/value_case.h) is read, too. Errors: not our JSON, an unknown operation, size, class
// or placing.
Result<SavedCase> read_case_file(const std::string& path);

}  // namespace verbatim::tools
