// tools/kernel/judge.h: owns what a kernel's call is held against: the definition's bits, a bound of error for the fast
// profile, and that nothing but its inputs decides what it leaves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tools/kernel/arguments.h"
#include "tools/kernel/kernel_host.h"

namespace verbatim::tools {

enum class Verdict : uint8_t {
    kPass,
    kWrongBits,         // other bits than the definition's
    kBeyondBound,       // of the fast profile: a greater error than is allowed
    kNotDeterministic,  // the same call twice, other bits
    kReadsOutput,       // bits depend on what the outputs held before
    kReadsWorkspace,    // ... on what the workspace held before
    kUnwritten,         // an output element is left as it was
    kOutside,           // writes outside of a tensor
    kInputChanged,
    kCrash,
    kHang,
    kFails,  // run() returns an error
    // Of the emulator.
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
    kVaries,          // of `kernel invariance`
    kNotTried,        // of it, too: the kernel refused whatever would have shown a property
    kUselessBarrier,  // of `kernel race --mutate`
    kTakesNothing,    // no case was of a shape that the kernel takes
};
std::string_view name(Verdict verdict);

struct Failure {
    Verdict verdict = Verdict::kPass;
    std::string detail;
    KernelCase one;
    CallOptions options;
    std::string property;      // of `kernel invariance`: which one does not hold
    std::string hint;          // what else is known
    bool is_smallest = false;  // it was made smaller as far as that goes
};

// A case and how its call is made.
struct CheckCase {
    KernelCase one;
    CallOptions options;
};

// The call with the outputs of the definition. REQUIRES: the operation has one in this profile.
Arguments defined(const Arguments& call, std::string_view profile);

// "" when all outputs have the same bits, NaN like NaN.
std::string first_difference(const Arguments& got, const Arguments& wanted);

// What a kernel leaves of a call, held against the definition in its profile; kPass: nothing is wrong with it.
struct Fault {
    Verdict verdict = Verdict::kPass;
    std::string detail;
};
Fault fault_of(const KernelInfo& kernel, const Arguments& got, const Arguments& call);

// Of a call that did not end well. REQUIRES: result.end is neither kDone nor kUnsupported.
Verdict verdict_of(const CallResult& result);

struct Judgement {
    bool supported = true;
    std::optional<Failure> failure;
};
// Two calls, held against each other and against the definition.
Judgement judge(KernelHost& host, const KernelInfo& kernel, const Operation& operation, const CheckCase& check);

// The fast profile. An output's error is its distance from the binary64 model in ulps of the tensor's greatest value;
// it may be four times the worst of the exact definition, and at least this much. An operation without a model (its
// results are integers) has the definition's bits in every profile.
inline constexpr double kFastUlps = 256;
inline constexpr double kFastTimesExact = 4;

}  // namespace verbatim::tools
