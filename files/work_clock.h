// files/work_clock.h: the processor time of this process, all threads together: other processes do not affect
// it. For one thread it equals the wall time of an idle machine.
#pragma once

#include <time.h>

#include "engine/clock.h"

namespace verbatim {

class WorkClock final : public verbatim::Clock {
public:
    [[nodiscard]] int64_t now_ns() override {
        timespec time{};
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
        return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
    }
};

}  // namespace verbatim
