// tools/program/failing_executor.h: another executor's results, until it is told to fail: to see by hand that nothing
// is lost with an executor.
#pragma once

#include <string>

#include "engine/base/result.h"
#include "engine/executor.h"

namespace verbatim::tools {

class FailingExecutor final : public Executor {
public:
    // Borrows the other one. execute() of step `fail_at` and of those after it is an error.
    FailingExecutor(Executor& inner, int64_t fail_at) : inner_(inner), fail_at_(fail_at) {}

    Status execute(const StepPlan& plan, StepResult& result) override {
        if (plan.step >= fail_at_) return error("step {}: the executor was told to fail", plan.step);
        return inner_.execute(plan, result);
    }
    std::optional<Digest> head_digest(const HeadImage& image) override { return inner_.head_digest(image); }
    [[nodiscard]] std::string numerics_id() const override { return inner_.numerics_id(); }
    [[nodiscard]] std::string ordinary_numerics_id() const override { return inner_.ordinary_numerics_id(); }

private:
    Executor& inner_;
    int64_t fail_at_;
};

}  // namespace verbatim::tools
