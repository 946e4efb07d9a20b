// tools/program/time_source.h: the clock that measures the steps of this machine's executors.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/base/choices.h"
#include "engine/clock.h"
#include "files/steady_clock.h"
#include "files/work_clock.h"

namespace verbatim::tools {

enum class TimeSource : uint8_t { kWall, kWork };

inline Choices<TimeSource> time_source_choices() { return {{"wall", TimeSource::kWall}, {"work", TimeSource::kWork}}; }

inline std::unique_ptr<Clock> clock_of(TimeSource source) {
    if (source == TimeSource::kWork) return std::make_unique<WorkClock>();
    return std::make_unique<SteadyClock>();
}

}  // namespace verbatim::tools
