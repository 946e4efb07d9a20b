// files/steady_clock.h: the machine's monotonic clock.
#pragma once

#include <chrono>

#include "engine/clock.h"

namespace verbatim {

class SteadyClock final : public verbatim::Clock {
public:
    [[nodiscard]] int64_t now_ns() override {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count();
    }
};

}  // namespace verbatim
