// engine/timed_executor.h: another executor's results, with the time that they took.
#pragma once

#include <optional>
#include <string>

#include "engine/base/digest.h"
#include "engine/base/result.h"
#include "engine/clock.h"
#include "engine/executor.h"
#include "engine/step_plan.h"

namespace verbatim {

class TimedExecutor final : public WrappingExecutor {
public:
    // Borrows both.
    TimedExecutor(Executor& inner, Clock& clock) : WrappingExecutor(inner), clock_(clock) {}

    Status execute(const StepPlan& plan, StepResult& result) override {
        const int64_t begin_ns = clock_.now_ns();
        RETURN_IF_ERROR(inner().execute(plan, result));
        result.elapsed_ns = clock_.now_ns() - begin_ns;
        return {};
    }

private:
    Clock& clock_;
};

}  // namespace verbatim
