// kernels/sandbox/judge.h: owns the checks of a kernel's call: the definition's bits, an error bound for the fast
// profile, and that its inputs alone determine its outputs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/sandbox/arguments.h"
#include "kernels/sandbox/kernel_host.h"

namespace verbatim::sandbox {

enum class Verdict : uint8_t {
    kPass,
    kWrongBits,         // other bits than the definition's
    kBeyondBound,       // fast profile: the error exceeds the bound
    kNotDeterministic,  // the same call twice, other bits
    kReadsOutput,       // bits depend on what the outputs held before
    kReadsWorkspace,    // ... on what the workspace held before
    kUnwritten,         // an output element was not written
    kOutside,           // a write outside of a tensor
    kInputChanged,
    kCrash,
    kHang,
    kFails,  // run() returns an error
    // From the emulator.
    kOutOfBounds,
    kMisaligned,
    kUninitialised,
    kRace,
    kBarrier,
    kWarpMask,
    kDivergent,
    kNotAwaited,
    kMissingFence,
    kBarrierUse,
    kLaunchLimit,
    kBypass,          // device memory is accessed without a view, or static memory from a kernel
    kVaries,          // of `kernel invariance`
    kNotTried,        // likewise: the kernel refused every variation of a property
    kUselessBarrier,  // of `kernel race --mutate`
    kReferenceFails,  // of a contract: it crashes, hangs or returns an error
    kTakesNothing,    // the kernel takes the shape of no case
};
std::string_view name(Verdict verdict);

struct Failure {
    Verdict verdict = Verdict::kPass;
    std::string detail;
    KernelCase one;
    CallOptions options;
    std::string property;              // of `kernel invariance`: the violated one
    std::string hint;                  // further facts
    bool is_smallest = false;          // it could not be reduced further
    std::vector<uint64_t> where = {};  // code in the library, kFrames addresses for each finding; empty: unknown
};

// A case and the options of its call.
struct CheckCase {
    KernelCase one;
    CallOptions options;
};

// The call with the outputs of the definition. REQUIRES: the operation is built in, and has one in this profile.
Arguments defined(const Arguments& call, std::string_view profile);

// "" when all outputs have the same bits, NaN like NaN.
std::string first_difference(const Arguments& got, const Arguments& wanted);

// A kernel's results compared with the definition in its profile; kPass: no fault.
struct Fault {
    Verdict verdict = Verdict::kPass;
    std::string detail;
};
Fault fault_of(const KernelInfo& kernel, const Arguments& got, const Arguments& call);

// For a call that did not complete. REQUIRES: result.end is neither kDone nor kUnsupported.
Verdict verdict_of(const CallResult& result);

struct Judgement {
    bool supported = true;
    std::optional<Failure> failure;
    std::vector<std::string> notes = {};  // of the emulator
};
// Makes the call twice; compares the results with each other and with the definition. With options.watches_tasks a CPU
// kernel's tasks are watched in a third one.
Judgement judge(KernelHost& host, const KernelInfo& kernel, const Operation& operation, const CheckCase& check);

// The fast profile's bounds (kernels/sandbox/error_bounds.h). An operation without an analysis has this one: an
// output's error, in ulps of the tensor's largest value, may be four times the exact definition's worst, and at least
// kFastUlps. An operation without a model (its results are integers) has the definition's bits in every profile.
inline constexpr double kFastUlps = 256;
inline constexpr double kFastTimesExact = 4;
// Whatever the values: kernels may flush subnormals, whose products with 2^11 elements are below this.
inline constexpr double kLeastFastBound = 0x1p-115;

}  // namespace verbatim::sandbox
