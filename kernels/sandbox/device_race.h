// kernels/sandbox/device_race.h: owns running compute-sanitizer on a CUDA file with this machine's GPU: nvcc makes one
// program of the file and kernels/sandbox/device_run.cu, and every tool observes the same calls.
//
// Format of a call in a file, numbers of 8 bytes: the size of the operation's struct, the number of tensors, the number
// of pointers; the struct; for each tensor its size, 1 if it is uninitialised (else 0), and its contents; for each
// pointer its offset in the struct and its tensor.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "kernels/sandbox/judge.h"

namespace verbatim::sandbox {

// The tools, in the order in which they run.
inline constexpr std::string_view kSanitizers[] = {"memcheck", "racecheck", "initcheck", "synccheck"};

struct SanitizerFinding {
    Verdict verdict = Verdict::kPass;
    std::string text;  // "my_op.cu:41: racecheck: Race reported between ..."
    friend bool operator==(const SanitizerFinding&, const SanitizerFinding&) = default;
};
// Parses a tool's report: each place and kind once. REQUIRES: a tool of kSanitizers.
std::vector<SanitizerFinding> read_sanitizer(std::string_view tool, std::string_view report);

struct DeviceRace {
    std::vector<SanitizerFinding> findings;
    std::vector<std::string> notes;  // the tools that found nothing, or why none ran
};
// file: a .cu; gpu: the result of find_gpu() (kernels/sandbox/gpu_program.h). A missing nvcc or compute-sanitizer is a
// note; a tool that crashes or hangs, and a file that nvcc rejects, are findings.
DeviceRace race_on_device(const std::string& file, const std::vector<std::string>& flags, const std::string& gpu,
                          const KernelInfo& kernel, const std::vector<CheckCase>& cases);

// The call in device_run's format.
std::string device_call(const Arguments& call);

}  // namespace verbatim::sandbox
