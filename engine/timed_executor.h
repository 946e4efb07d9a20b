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

class TimedExecutor final : public Executor {
public:
    // Borrows both.
    TimedExecutor(Executor& inner, Clock& clock) : inner_(inner), clock_(clock) {}

    Status execute(const StepPlan& plan, StepResult& result) override {
        const int64_t begin_ns = clock_.now_ns();
        RETURN_IF_ERROR(inner_.execute(plan, result));
        result.elapsed_ns = clock_.now_ns() - begin_ns;
        return {};
    }
    std::optional<Digest> head_digest(const HeadImage& image) override { return inner_.head_digest(image); }
    [[nodiscard]] std::string numerics_id() const override { return inner_.numerics_id(); }
    [[nodiscard]] std::string ordinary_numerics_id() const override { return inner_.ordinary_numerics_id(); }

private:
    Executor& inner_;
    Clock& clock_;
};

}  // namespace verbatim
