// kernels/sandbox/check.h: owns the cases for a kernel, the reduction of the first failure, and the files that keep it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "kernels/sandbox/given_sizes.h"
#include "kernels/sandbox/judge.h"
#include "kernels/sandbox/workload.h"

namespace verbatim::sandbox {

enum class Effort : uint8_t { kShort, kFull };

// Every size at each of its edges, every class of values in each placing, random sizes, shapes of published models (cut
// where they are too much work), real batches and contexts with the other sizes thin, the given sizes. The machine
// matters: the emulator gets little work per case.
std::vector<CheckCase> check_cases(const Operation& operation, const KernelInfo& kernel, Effort effort, uint64_t seed,
                                   const GivenSizes& given = {});
// Batches of several items, for `kernel invariance`; real ones, and the given sizes.
std::vector<KernelCase> invariance_cases(const Operation& operation, const KernelInfo& kernel, Effort effort,
                                         uint64_t seed, const GivenSizes& given = {});
// Whether a size is beyond all of its edges: a real one, or a given one.
bool is_real(const Operation& operation, const Sizes& sizes);

// Calls of a real run, in addition to the other cases, and the number of calls too large for this kernel's machine.
struct WorkloadCases {
    std::vector<CheckCase> cases;
    int64_t num_left_out = 0;
};
WorkloadCases workload_cases(const KernelInfo& kernel, Effort effort, const Workload& workload);

// Finds a smaller case that still fails; `fails` returns the failure, or none when there is none or a different one.
using Fails = std::function<std::optional<Failure>(const KernelCase& one)>;
Failure smallest_failure(const Operation& operation, const Failure& failure, const Fails& fails);

struct CheckResult {
    int64_t num_cases = 0;
    int64_t num_unsupported = 0;
    std::optional<Failure> failure;
    std::vector<std::string> notes;  // of the emulator, each once
};
// Runs until the first failure, which is then reduced.
CheckResult check_kernel(KernelHost& host, const KernelInfo& kernel, const Operation& operation,
                         const std::vector<CheckCase>& cases);

// A failure as a file that repeats it (`--case FILE`).
std::string case_file(const Operation& operation, const Failure& failure);
struct SavedCase {
    std::string operation;
    CheckCase check;
    std::string property;  // of `kernel invariance`
};
// Also reads a file with values (kernels/sandbox/value_case.h). Errors: not a case file, an unknown operation, size,
// class or placing.
Result<SavedCase> read_case_file(const std::string& path);

}  // namespace verbatim::sandbox
