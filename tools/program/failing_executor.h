// tools/program/failing_executor.h: another executor's results, until it is told to fail: to see by hand that nothing
// is lost with an executor.
#pragma once

#include <string>

#include "engine/base/result.h"
#include "engine/executor.h"

namespace verbatim::tools {

class FailingExecutor final : public WrappingExecutor {
public:
    // Borrows the other one. execute() of step `fail_at` and of those after it is an error.
    FailingExecutor(Executor& inner, int64_t fail_at) : WrappingExecutor(inner), fail_at_(fail_at) {}

    Status execute(const StepPlan& plan, StepResult& result) override {
        if (plan.step >= fail_at_) return error("step {}: the executor was told to fail", plan.step);
        return inner().execute(plan, result);
    }

private:
    int64_t fail_at_;
};

}  // namespace verbatim::tools
