// tests/support/delayed_executor.h: another executor's results, materialised `lag_steps` steps late, as on a device
// that writes asynchronously.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "engine/executor.h"

namespace verbatim::tests {

class DelayedExecutor final : public WrappingExecutor {
public:
    DelayedExecutor(Executor& inner, int64_t lag_steps) : WrappingExecutor(inner), lag_steps_(lag_steps) {}

    Status execute(const StepPlan& plan, StepResult& result) override {
        RETURN_IF_ERROR(inner().execute(plan, result));
        result.materialised_through_step -= lag_steps_;
        return {};
    }
    [[nodiscard]] bool complete_masks_with(std::function<void()> complete) override {
        return inner().complete_masks_with(std::move(complete));
    }

private:
    int64_t lag_steps_;
};

}  // namespace verbatim::tests
