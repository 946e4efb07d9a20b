// reference/records/step_digests.h: the digests of an executor's results, in a record's form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/result.h"
#include "engine/executor.h"
#include "engine/step_plan.h"
#include "reference/numeric_executor.h"
#include "reference/numerics/element_sum.h"
#include "reference/records/format.h"
#include "reference/records/walk_points.h"

namespace verbatim::records {

// The sum of a row whose first element has this place. All NaNs count as one: payloads are not part of the numbers.
[[nodiscard]] reference::ElementSum sum_of_row(std::span<const float> row, int64_t place);
// The low word alone.
[[nodiscard]] uint64_t low_sum_of_row(std::span<const float> row, int64_t place);
// The sum of a row of logits: SequenceRecord::logits.
[[nodiscard]] uint64_t logits_sum(std::span<const float> logits, int64_t position);

// Runs plans on `inner` and sums what `numeric`, the executor that computes in it, wrote: both may be one executor, or
// `numeric` is the primary of a lockstep.
class DigestingExecutor final : public WrappingExecutor {
public:
    // Borrows both. REQUIRES: the recording observer of `numeric` is free.
    DigestingExecutor(Executor& inner, reference::NumericExecutor& numeric, DigestLevel level);
    ~DigestingExecutor() override;

    Status execute(const StepPlan& plan, StepResult& result) override;
    // Of the last step: one for each sequence that computed, in plan order.
    [[nodiscard]] const std::vector<SequenceRecord>& sequences() const { return sequences_; }

private:
    // A slot's part of the step in progress; slots are computed in parallel.
    struct SlotSums {
        int64_t known_end = 0;
        size_t next = 0;  // operation of the walk in progress
        size_t num_ops = 0;
        // [1 + drafts][num_ops]: of the known positions, then of each draft's.
        std::vector<reference::ElementSum> sums;
    };
    void begin(const StepPlan& plan);
    void observe(const reference::Observation& observation);
    void add_layer(SlotSums& share, const reference::Observation& observation) const;
    void add_op(SlotSums& share, const reference::Observation& observation) const;
    [[nodiscard]] SequenceRecord record_of(const StepPlan& plan, const ScheduledSequence& sequence,
                                           const SampledTokens* drawn);

    reference::NumericExecutor& numeric_;
    DigestLevel level_;
    WalkPoints points_;
    std::vector<SlotSums> shares_;  // by slot
    std::vector<SequenceRecord> sequences_;
};

// The part of a sequence's record that needs no executor: positions and drafts.
[[nodiscard]] SequenceRecord plain_record_of(const StepPlan& plan, const ScheduledSequence& sequence, RequestId request,
                                             const SampledTokens* drawn);

// Calls `visit(sequence, drawn)` for every computing sequence of a plan; `drawn` is null where it sampled nothing.
template <typename Visit>
void for_each_share(const StepPlan& plan, const StepResult& result, const Visit& visit) {
    size_t next = 0;
    for (const ScheduledSequence& sequence : plan.sequences) {
        const SampledTokens* drawn = sequence.num_sampled_positions > 0 ? &result.drawn[next++] : nullptr;
        if (sequence.num_new_tokens > 0) visit(sequence, drawn);
    }
}

}  // namespace verbatim::records
