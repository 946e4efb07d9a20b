// tests/support/delayed_executor.h: another executor's results, materialised `lag_steps` steps late: what a device that
// writes in the background looks like to the engine.
#pragma once

#include "engine/executor.h"

namespace verbatim::tests {

class DelayedExecutor final : public Executor {
public:
    DelayedExecutor(Executor& inner, int64_t lag_steps) : inner_(inner), lag_steps_(lag_steps) {}

    Status execute(const StepPlan& plan, StepResult& result) override {
        RETURN_IF_ERROR(inner_.execute(plan, result));
        result.materialised_through_step -= lag_steps_;
        return {};
    }
    std::optional<Digest> head_digest(const HeadImage& image) override { return inner_.head_digest(image); }
    [[nodiscard]] std::string numerics_id() const override { return inner_.numerics_id(); }
    [[nodiscard]] std::string ordinary_numerics_id() const override { return inner_.ordinary_numerics_id(); }

private:
    Executor& inner_;
    int64_t lag_steps_;
};

}  // namespace verbatim::tests
