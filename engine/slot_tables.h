// engine/slot_tables.h: the tables that every executor keeps of its slots, incrementally from plans: tokens, computed
// length, block table, state row. Owns no bytes. apply() also checks what an executor can check of a plan:
//   L1  finished slots are live; new sequences' slots are free ones below kMaxSlots; a slot is scheduled at most once,
//       in order of admission (P1)
//   L2  a sequence continues at its slot's length, over tokens that the slot has, and its table reaches its last new
//       position; a sequence that samples computes up to its last token, drafts included, and its drafts are dropped
//       after the step. Without new tokens a sequence may go back to a shorter length, as far as its row's length, and
//       drops the tokens after it
//   L3  a block that is written or new is in its writer's table and in no other live one (P2)
//   L4  an attached length that is no multiple of the block size comes with one copy of its tail, of exactly that
//       many slots
//   L5  the first step of a slot reads another slot's row (none, at length 0); the later steps read the row that was
//       written last and write the slot's row or none; the log between that row and the length has at most
//       max_log_tokens
//   L6  no other sequence reads or writes a destination (new block, state_dst, StateWrite) in the step (P3, as far as
//       plans show it)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/result.h"
#include "engine/pool_sizes.h"
#include "engine/step_plan.h"

namespace verbatim {

// Of an executor. A running request has one, and a second one while it has a draft path.
inline constexpr int32_t kMaxSlots = 1 << 20;

struct SlotTablesConfig {
    int32_t vocab_size = 0;
    PoolSizes pools;             // without blocks plans name none; without rows every row is kNoState
    int32_t max_log_tokens = 0;  // of a slot: behind what its row has taken in, drafts among them
    bool check_memory = true;    // false: blocks and rows are neither checked nor kept (executors without pools)
};

struct SlotTable {
    bool live = false;
    bool stepped = false;  // has been scheduled since its start
    RequestId request{};
    int64_t admission = 0;            // ascending over starts
    int64_t num_prompt_tokens = 0;    // of `tokens`
    int64_t num_attached_tokens = 0;  // computed before its start
    int64_t length = 0;               // computed tokens; during a step: before it
    std::vector<TokenId> tokens;      // all known ones; during a step also its drafts
    std::vector<BlockId> blocks;
    StateIndex state = kNoState;   // the slot's row, once it has one
    StateIndex source = kNoState;  // the row that was written last: `state`, or the attached head's row
    int64_t state_length = 0;      // of `source`
    SamplingParams sampling;
    std::vector<int32_t> mask_runs;  // of the step (ScheduledSequence::mask)
};

class SlotTables {
public:
    explicit SlotTables(SlotTablesConfig config);

    // Finished slots, new sequences, appended tokens and new blocks. An error names the rule that the plan breaks; the
    // tables are invalid after it.
    Status apply(const StepPlan& plan);
    // Masks that the plan lacked when it was applied, and those that it had.
    Status apply_masks(const StepPlan& plan);
    // The plan has been carried out: its sequences are longer by their new tokens, without the drafts that were not
    // accepted. REQUIRES: `drawn` has one for each sequence that samples, in plan order.
    void advance(const StepPlan& plan, std::span<const SampledTokens> drawn);

    // After an error of apply(): the slot whose share broke the rule; kNoSlot: none in particular.
    [[nodiscard]] SequenceSlot refused_slot() const { return checked_slot_; }

    [[nodiscard]] bool is_live(SequenceSlot slot) const;
    [[nodiscard]] const SlotTable& at(SequenceSlot slot) const;  // REQUIRES: is_live(slot)
    [[nodiscard]] int32_t num_slots() const { return static_cast<int32_t>(slots_.size()); }
    [[nodiscard]] const SlotTablesConfig& config() const { return config_; }

private:
    Status take_mask(const StepPlan& plan, const ScheduledSequence& sequence);
    Status end(SequenceSlot slot);
    Status start(const StepPlan& plan, const SequenceStart& start);
    Status extend(const StepPlan& plan, const ScheduledSequence& sequence);
    Status check_memory(const StepPlan& plan);
    Status check_rows(const StepPlan& plan, const ScheduledSequence& sequence) const;
    Status check_state(const StepPlan& plan, const ScheduledSequence& sequence);
    Status check_written_blocks(const ScheduledSequence& sequence) const;
    Status check_copies(const StepPlan& plan);
    Status check_row_uses(const StepPlan& plan);
    Status count_block(BlockId block, int32_t times);
    [[nodiscard]] bool is_row(StateIndex row) const;
    [[nodiscard]] bool has_state() const { return config_.pools.num_state_rows > 0; }

    SlotTablesConfig config_;
    std::vector<SlotTable> slots_;
    std::vector<int32_t> tables_of_block_;    // live tables that name the block
    std::vector<SequenceSlot> owner_of_row_;  // the live slot whose row it is
    std::vector<int64_t> row_destination_;    // the step in which the row was last a destination
    int64_t num_admitted_ = 0;
    SequenceSlot checked_slot_ = kNoSlot;  // by apply(), last
};

}  // namespace verbatim
