// engine/clock.h: where time comes from. The engine itself never asks: what a step took comes back with its result.
#pragma once

#include <cstdint>

namespace verbatim {

class Clock {
public:
    virtual ~Clock() = default;
    [[nodiscard]] virtual int64_t now_ns() = 0;  // from some point in the past; never goes back
};

}  // namespace verbatim
