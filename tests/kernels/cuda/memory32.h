// tests/kernels/cuda/memory32.h: owns device memory of whole numbers for tests of the emulator, and the usual orders of
// threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/simt/emulator.h"
#include "kernels/simt/simt.h"

namespace verbatim::simt {

struct Memory32 {
    Memory32(Emulator& emulator, int64_t count) : emulator(emulator), count(count) {
        data = static_cast<int32_t*>(emulator.allocate(static_cast<size_t>(count) * 4, 4));
    }
    Global<int32_t> view() const { return Global<int32_t>(emulator, data, count); }
    void fill(int32_t value) const {
        std::fill_n(data, count, value);
        emulator.memory_of(data).fill(0, static_cast<size_t>(count) * 4);
    }
    Emulator& emulator;
    int64_t count;
    int32_t* data;
};

inline const std::vector<Schedule> kOrders = {Schedule::kForward, Schedule::kReverse, Schedule::kRandom,
                                              Schedule::kOneWarpAhead};

}  // namespace verbatim::simt
