// simulator/step_timer.h: how long a step took, told by who pretends to have carried it out.
#pragma once

#include <cstdint>

namespace verbatim {

class StepTimer {
public:
    virtual ~StepTimer() = default;
    // Of the last step that was carried out; 0 where nothing was computed.
    [[nodiscard]] virtual int64_t last_elapsed_ns() const = 0;
};

}  // namespace verbatim
