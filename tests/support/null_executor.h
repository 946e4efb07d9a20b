// tests/support/null_executor.h: an executor that computes nothing, to measure the engine's cost and decisions alone.
#pragma once

#include <optional>
#include <string>

#include "engine/executor.h"
#include "engine/recorder.h"

namespace verbatim {

// Samples a fixed token for every sequence, at once.
class NullExecutor final : public Executor {
public:
    Status execute(const StepPlan& plan, StepResult& result) override {
        result.clear(plan.step);
        result.materialised_through_step = plan.step;
        constexpr TokenId kToken = 1;
        for (const ScheduledSequence& sequence : plan.sequences) {
            if (sequence.num_sampled_positions > 0) result.add(sequence.slot, {&kToken, 1});
        }
        return {};
    }
    std::optional<Digest> head_digest(const HeadImage&) override { return std::nullopt; }
    [[nodiscard]] std::string numerics_id() const override { return "null/1"; }
};

class NullRecorder : public Recorder {
public:
    void on_plan(const StepPlan&) override {}
    void on_token(RequestId, TokenId) override {}
    void on_event(const Event&) override {}
};

}  // namespace verbatim
