// reference/reference_executor.h: the uncached reference as an executor. It ignores blocks, copies and state rows: a
// sequence that starts, attached or not, is computed from position 0 with separate KV and states. Whatever a cache
// does, this executor's results are those of a run without one.
//
//   E1  logits and tokens depend on a sequence's tokens alone: no number of a plan that names memory is read
//   E2  drafts are computed one by one, each after it has been accepted: no rollback is needed
//   E3  it holds heads of running sequences only: at the sequence's present length, inside its last window, and at the
//       lengths of StateWrites it has passed
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reference/numeric_executor.h"
#include "reference/reference_model.h"
#include "reference/worker_pool.h"

namespace verbatim::reference {

class ReferenceExecutor final : public NumericExecutor {
public:
    // Borrows config and weights. Threads work on different sequences.
    // REQUIRES: not kFast.
    ReferenceExecutor(const ModelConfig& config, const ModelWeights& weights, int32_t num_threads = 1,
                      Profile profile = Profile::kExact);

    [[nodiscard]] std::string numerics_id() const override;
    bool read_head(const HeadImage& image, const HeadReader& reader) override;
    [[nodiscard]] std::span<const float> logits(SequenceSlot slot, int32_t draw) override;
    // Tokens that plans attached and that were computed again.
    [[nodiscard]] int64_t num_recomputed_tokens() const { return num_recomputed_tokens_; }

protected:
    void compute(const StepPlan& plan) override;
    void compute_accepted_draft(const ScheduledSequence& sequence, int32_t draw) override;
    [[nodiscard]] std::optional<int32_t> fault_layer(SequenceSlot slot, int32_t draw) override;

private:
    // The state row at one length: the list's per-sequence tensors, without gaps.
    using StateRow = std::vector<std::byte>;
    struct Running {
        std::unique_ptr<ReferenceSequence> sequence;
        std::map<int64_t, StateRow> passed;      // by length of a StateWrite
        std::map<int64_t, StateRow> drawn_at;    // by length: after each row of its last window
        std::vector<std::vector<float>> logits;  // of the last step, by sampled row
        std::vector<std::vector<float>> scored;  // of the last step, by scored position
    };
    void compute(const StepPlan& plan, const ScheduledSequence& scheduled);
    void append(SequenceSlot slot, int64_t end, LogitRows which, bool observed);
    void append_scoring(SequenceSlot slot, int64_t end, int64_t first_scored);
    void append_drawing(SequenceSlot slot, int64_t end);
    [[nodiscard]] StateRow state_row_of(const ReferenceSequence& sequence) const;

    ReferenceModel model_;
    WorkerPool pool_;
    std::vector<Running> running_;  // by slot
    int64_t num_recomputed_tokens_ = 0;
};

}  // namespace verbatim::reference
