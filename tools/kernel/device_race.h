// tools/kernel/device_race.h: owns what compute-sanitizer says of a CUDA file on this machine's GPU: the file and
// kernels/sandbox/device_run.cu are one program, made by nvcc, and every tool watches it carry out the same calls.
//
// A call in a file, numbers of 8 bytes: the bytes of the operation's struct, how many tensors, how many pointers; the
// struct; for each tensor its bytes, 1 where nobody has written it yet (else 0), and what it holds; for each pointer
// its place in the struct and its tensor.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "tools/kernel/judge.h"

namespace verbatim::tools {

// "sm_90", the first GPU as its driver tells it; "" without one. Nothing of CUDA is left in this process.
std::string find_gpu();

// The tools, in the order in which they look.
inline constexpr std::string_view kSanitizers[] = {"memcheck", "racecheck", "initcheck", "synccheck"};

struct SanitizerFinding {
    Verdict verdict = Verdict::kPass;
    std::string text;  // "my_op.cu:41: racecheck: Race reported between ..."
    friend bool operator==(const SanitizerFinding&, const SanitizerFinding&) = default;
};
// A tool's report, each place and kind once. REQUIRES: a tool of kSanitizers.
std::vector<SanitizerFinding> read_sanitizer(std::string_view tool, std::string_view report);

struct DeviceRace {
    std::vector<SanitizerFinding> findings;
    std::vector<std::string> notes;  // which tools looked and found nothing, or why none did
};
// file: a .cu; gpu: what find_gpu() says. No nvcc or no compute-sanitizer is a note; a tool that breaks or does not
// end, and a file that nvcc does not take, are findings.
DeviceRace race_on_device(const std::string& file, const std::vector<std::string>& flags, const std::string& gpu,
                          const KernelInfo& kernel, const std::vector<CheckCase>& cases);

// The call as device_run reads it.
std::string device_call(const Arguments& call);

}  // namespace verbatim::tools
