// kernels/executors/failing_executor.h: fault injection: an executor's results until a given step, then errors; shows
// that no work is lost with an executor.
#pragma once

#include <string>

#include "engine/base/result.h"
#include "engine/executor.h"

namespace verbatim::executors {

class FailingExecutor final : public WrappingExecutor {
public:
    // Borrows `inner`. execute() of step `fail_at` and later returns an error.
    FailingExecutor(Executor& inner, int64_t fail_at) : WrappingExecutor(inner), fail_at_(fail_at) {}

    Status execute(const StepPlan& plan, StepResult& result) override {
        if (plan.step >= fail_at_) return error("step {}: the executor was told to fail", plan.step);
        return inner().execute(plan, result);
    }

private:
    int64_t fail_at_;
};

}  // namespace verbatim::executors
