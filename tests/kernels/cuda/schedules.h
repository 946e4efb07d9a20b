// tests/kernels/cuda/schedules.h: owns the orders of threads in which a test runs kernels.
#pragma once

#include <string>
#include <vector>

#include "kernels/cuda/simt/emulator.h"
#include "tests/support/sanitized.h"

namespace verbatim::cuda {

// All that there are, but kLaneBehind, which is for who waits by parity; under a sanitizer the least orderly one, for a
// kernel touches the same memory in each.
inline std::vector<simt::Schedule> schedules() {
    using simt::Schedule;
    if (tests::kSanitized) return {Schedule::kRandom};
    return {Schedule::kForward, Schedule::kReverse, Schedule::kRandom, Schedule::kOneWarpAhead};
}

// For the name of a test.
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
