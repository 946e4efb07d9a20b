// tests/kernels/cuda/schedules.h: owns the thread schedules under which a test runs kernels.
#pragma once

#include <string>
#include <vector>

#include "kernels/simt/emulator.h"
#include "tests/support/sanitized.h"

namespace verbatim::cuda {

// All schedules but kLaneBehind, which is for waits on a barrier's parity; under a sanitizer one random schedule, since
// a kernel accesses the same memory in each.
inline std::vector<simt::Schedule> schedules() {
    using simt::Schedule;
    if (tests::kSanitized) return {Schedule::kRandom};
    return {Schedule::kForward, Schedule::kReverse, Schedule::kRandom, Schedule::kOneWarpAhead};
}

// For a test's name.
inline std::string name_of(simt::Schedule schedule) {
    switch (schedule) {
        case simt::Schedule::kForward: return "Forward";
        case simt::Schedule::kReverse: return "Reverse";
        case simt::Schedule::kRandom: return "Random";
        case simt::Schedule::kOneWarpAhead: return "OneWarpAhead";
        case simt::Schedule::kLaneBehind: return "LaneBehind";
    }
    return "";
}

}  // namespace verbatim::cuda
