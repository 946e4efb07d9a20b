// tools/program/work_clock.h: the time that this process has worked, its threads' together: what other processes take
// of the machine does not count. Of one thread it is what a quiet machine's clock would show.
#pragma once

#include <time.h>

#include "engine/clock.h"

namespace verbatim::tools {

class WorkClock final : public verbatim::Clock {
public:
    [[nodiscard]] int64_t now_ns() override {
        timespec time{};
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
        return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
    }
};

}  // namespace verbatim::tools
