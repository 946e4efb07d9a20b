// kernels/sandbox/capture.h: owns `replay --capture OP`: observes an executor, and keeps the arguments of one operation
// of kernels/sandbox/kernel.h with the step's batch, on any executor.
//
//   A1  shapes come from the walk (reference/walk.h) over the plan's sequences
//   A2  values are the executor's: observed operations, state rows before the step, KV blocks after it
//   A3  a tensor with unknown or too many values is left out: the call's user generates it
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/digest.h"
#include "engine/base/result.h"
#include "engine/executor.h"
#include "engine/step_plan.h"
#include "kernels/sandbox/workload.h"
#include "reference/model/weights.h"
#include "reference/numeric_executor.h"

namespace verbatim::sandbox {

// Whether the operation can be captured. Error: the sandbox has no operation of this name.
Status check_captured_operation(const std::string& operation);

class CapturingExecutor final : public WrappingExecutor {
public:
    // Runs plans on `inner`; `numeric` computes in it, with pools. Borrows all of them. REQUIRES: the recording
    // observer of `numeric` is free.
    CapturingExecutor(Executor& inner, reference::NumericExecutor& numeric, const reference::Model& model,
                      std::string operation, CallSample& sample);
    ~CapturingExecutor() override;

    Status execute(const StepPlan& plan, StepResult& result) override;
    std::optional<Digest> head_digest(const HeadImage& image) override;

    // The rows that one operation wrote for one sequence.
    struct Written {
        reference::WalkPoint point;
        int64_t num_rows = 0;
        std::vector<float> values;
    };
    // A sequence's state row tensors before the step, by layer.
    using StateRows = std::map<int32_t, std::vector<float>>;
    // The known values of the step in progress; indices are those of its sequences with rows, in plan order.
    struct Step {
        int64_t number = 0;
        std::vector<const ScheduledSequence*> sequences;
        bool is_observed = false;
        std::vector<std::vector<Written>> written;
        std::vector<StateRows> states;  // empty for a sequence without a row
        bool states_known = false;
    };

private:
    void observe(const reference::Observation& observation);
    void begin(const StepPlan& plan);
    void read_states();
    void capture_walk();
    // A token that was sampled in the step in progress.
    struct DrawnRow {
        const SlotTable& table;
        SequenceSlot slot;
        int32_t draw;
        int64_t end;  // end of the tokens before the sampled one
        [[nodiscard]] int64_t num_generated() const { return end - table.num_prompt_tokens; }
    };
    // Capacity of a row, in tokens.
    struct PrefixWidths {
        int64_t prompt = 0;
        int64_t generated = 0;
    };
    void capture_draws(const StepPlan& plan, const StepResult& result);
    [[nodiscard]] std::vector<DrawnRow> drawn_rows(const StepPlan& plan, const StepResult& result) const;
    [[nodiscard]] Captured captured_draws(const std::vector<DrawnRow>& rows, const PrefixWidths& widths);

    reference::NumericExecutor& numeric_;
    const reference::Model& model_;
    std::string operation_;
    CallSample& sample_;
    int64_t row_bytes_;  // of one position's observed operations
    Step step_;
    std::vector<int32_t> place_of_slot_;
};

}  // namespace verbatim::sandbox
