// engine/drafting/scratch_executor.h: owns the plans of a drafter's second executor, and the numbers of its blocks. All
// of that executor's memory is scratch.
//
//   S1  a block is free, or in one slot
//   S2  the executor learns of what has ended and of what is free with its next step
//   S3  when a step fails, the executor has forgotten every slot: forget() comes next
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/executor.h"
#include "engine/pool_sizes.h"
#include "engine/step_plan.h"

namespace verbatim {

// What every drafter keeps of a slot.
struct ScratchSlot {
    RequestId request{-1};
    int64_t length = 0;  // computed
    std::vector<int32_t> blocks;
    size_t num_sent_blocks = 0;  // of `blocks`, known to the executor
    bool started = false;
    int64_t admission = 0;
    int64_t last_used = 0;  // round

    // An executor wants the oldest slots first; those that start now are the newest.
    [[nodiscard]] int64_t order() const;
};

class ScratchExecutor {
public:
    // Borrows the executor, which is fresh.
    ScratchExecutor(Executor& executor, const PoolSizes& pools);

    // Every block is free, and no slot is there.
    void forget();
    // The slot's memory is free. The caller's slot is as new then.
    void end(int32_t at, const ScratchSlot& slot);
    [[nodiscard]] int64_t num_free_blocks() const { return static_cast<int64_t>(free_blocks_.size()); }
    // Blocks that the slot lacks for so many tokens; negative: it has more.
    [[nodiscard]] int64_t num_missing_blocks(const ScratchSlot& slot, int64_t num_tokens) const;
    // REQUIRES: num_missing_blocks() <= num_free_blocks()
    void grow(ScratchSlot& slot, int64_t num_tokens);

    // The next step begins the slot; `start` lacks the slot's number. REQUIRES: it is new.
    void start(int32_t at, ScratchSlot& slot, SequenceStart start);
    // The slot's share of the next step: its next `count` tokens, without a state row. `appended`: tokens that the
    // executor does not know. REQUIRES: it was started.
    ScheduledSequence& schedule(int32_t at, ScratchSlot& slot, int64_t count, std::span<const TokenId> appended);
    // Runs what is scheduled, if anything is. False: the executor has failed.
    [[nodiscard]] bool step();
    // What the i-th slot of the last step that samples, of `count`, has sampled; empty where nothing can be.
    [[nodiscard]] std::optional<TokenId> sampled(size_t i, size_t count) const;
    [[nodiscard]] bool is_scheduled() const { return !plan_.sequences.empty(); }
    [[nodiscard]] int64_t num_steps() const { return num_steps_; }

private:
    Executor& executor_;
    PoolSizes pools_;
    std::vector<int32_t> free_blocks_;
    std::vector<SequenceSlot> ended_slots_;  // the executor does not know it yet
    FreedUnits freed_;                       // the same
    StepPlan plan_;
    StepResult result_;
    int64_t num_admitted_ = 0;
    int64_t num_steps_ = 0;
};

}  // namespace verbatim
