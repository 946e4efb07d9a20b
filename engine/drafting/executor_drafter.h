// engine/drafting/executor_drafter.h: drafts with a second executor: a smaller model, or the same in a cheaper
// arithmetic. Owns the numbers of that executor's slots, blocks and rows; all of it is scratch.
//
// A request's slot computes the request's known tokens, then the drafts that it samples, whose states stay in the log:
// rejected drafts are dropped with the log (engine/step_plan.h).
//   B1  a slot's row holds the state after known tokens only
//   B2  a request without memory gets no drafts; memory is taken from the slot that drafted longest ago
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "engine/drafting/drafter.h"
#include "engine/drafting/scratch_executor.h"
#include "engine/executor.h"
#include "engine/pool_sizes.h"
#include "engine/step_plan.h"

namespace verbatim {

struct ExecutorDrafterConfig {
    PoolSizes pools;    // of its model
    PoolBudget budget;  // that its blocks and rows share; none: the pools alone are bounds
    int32_t max_num_slots = 1;
    int32_t step_tokens = 512;   // of one step of its executor
    int32_t max_log_tokens = 0;  // of its executor: at least max_drafts - 1
};

class ExecutorDrafter final : public Drafter {
public:
    // Borrows the executor, which is fresh, and the store.
    ExecutorDrafter(const ExecutorDrafterConfig& config, Executor& executor, TokenStore& store);

    void draft(std::span<DraftJob> jobs) override;
    void ended(RequestId request) override;
    [[nodiscard]] int64_t num_behind(const DraftJob& job) const override;

    // Steps and tokens that drafting has cost so far.
    [[nodiscard]] int64_t num_steps() const { return scratch_.num_steps(); }
    [[nodiscard]] int64_t num_computed_tokens() const { return num_computed_; }

private:
    struct Slot : ScratchSlot {
        SamplingParams sampling;
        std::vector<TokenId> tokens;  // known ones, then drafts
        int64_t num_prompt = 0;       // of `tokens`
        int64_t num_known = -1;       // of `tokens`, when it drafted last
        int64_t keep = 0;             // of `length`: what is still right
        int64_t state_length = 0;     // taken in by its row
        int64_t num_sent = 0;         // of `tokens`, known to the executor
    };
    // A job with the slot that drafts for it.
    struct Round {
        DraftJob* job = nullptr;
        int32_t slot = 0;
        int64_t num_known = 0;
        bool goes_on = true;
    };
    [[nodiscard]] int32_t slot_for(RequestId request);
    [[nodiscard]] bool fits(int64_t num_blocks, int64_t num_rows) const;
    [[nodiscard]] int32_t oldest_slot(bool with_blocks) const;
    void give_up(int32_t slot);
    void free_all();
    [[nodiscard]] bool make_room(int32_t slot, int64_t num_tokens);
    static void set_known(Slot& slot, const DraftJob& job);
    static void repeat_guesses(const Slot& slot, DraftJob& job);
    [[nodiscard]] bool fall_back(std::span<Round> active);
    [[nodiscard]] bool take_in(std::span<Round> active);
    [[nodiscard]] bool guess(std::span<Round> active);
    void take_guesses(std::span<Round* const> drawing);
    ScheduledSequence& plan(int32_t slot, int64_t count, bool writes_row);

    ExecutorDrafterConfig config_;
    ScratchExecutor scratch_;
    TokenStore& store_;
    std::map<RequestId, int32_t> slot_of_;
    std::vector<Slot> slots_;
    int64_t round_ = 0;
    int64_t num_computed_ = 0;
};

}  // namespace verbatim
