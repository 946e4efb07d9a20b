#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/scheduler/scheduler.h"

namespace verbatim {

// Whether its next tokens are drafted in ordinary arithmetic and verified in its arithmetic. Forced output is not
// drawn, and a mask follows from the tokens before it.
bool Scheduler::verifies(const Sequence& sequence) const {
    return config_.verify_tokens > 0 && sequence.arithmetic() == Arithmetic::kDeterministic && sequence.decodes() &&
           sequence.request.forced_output.empty() && !sequence.has_grammar();
}

// A whole window is drafted token by token, a step each. Then it is verified, with what it drafts meanwhile left alone.
void Scheduler::schedule_verification(Sequence& sequence, int32_t& budget, StepPlan& plan) {
    CHECK(verifies(sequence), "request {} does not verify", index(sequence.id));
    const int64_t left = sequence.max_tokens - static_cast<int64_t>(sequence.output.size());
    const int64_t window = std::min<int64_t>({config_.max_window, config_.verify_tokens, left});
    const auto num_drafts = static_cast<int64_t>(sequence.drafts.size());
    if (num_drafts < window - 1 && !sequence.drafts_end && draft(sequence, budget, plan)) return;
    if (num_drafts + 1 > verify_budget_) return;  // in a later step: older ones verify in this one
    const int32_t granted = allocate_blocks_for(sequence, 1);
    if (granted == 0) return;
    const int32_t num_rows = granted + allocate_blocks_for_drafts(sequence, budget - granted);
    plan_sequence(sequence, num_rows, plan);
    sequence.drafts_end = false;
    budget -= num_rows;
    verify_budget_ -= num_rows;
    CHECK(budget >= 0 && verify_budget_ >= 0, "{} tokens too many are computed, {} verified", -budget, -verify_budget_);
}

// One more draft. False when there is no room for it: it is only a guess.
bool Scheduler::draft(Sequence& sequence, int32_t& budget, StepPlan& plan) {
    const int64_t end = sequence.num_tokens() + static_cast<int64_t>(sequence.drafts.size());
    if (sequence.draft_path && sequence.draft_path->num_computed_tokens >= end) end_draft_path(sequence);
    if (!sequence.draft_path && !start_draft_path(sequence)) return false;
    DraftPath& path = *sequence.draft_path;
    const int64_t behind = end - path.num_computed_tokens;
    CHECK(behind > 0 && budget > 0, "request {} drafts token {} behind {}", index(sequence.id), end,
          path.num_computed_tokens);
    const auto num_new_tokens = static_cast<int32_t>(std::min<int64_t>(behind, budget));
    const int32_t missing = cache_.kv().blocks_missing(path.memory.blocks, path.num_computed_tokens + num_new_tokens);
    if (!cache_.make_room({.kv_blocks = deferred_blocks_ + missing}, {}) ||
        !cache_.grow(path.memory, path.num_computed_tokens + num_new_tokens)) {
        end_draft_path(sequence);
        return false;
    }
    plan_draft(sequence, num_new_tokens, plan);
    budget -= num_new_tokens;
    CHECK_GE(budget, 0);
    return true;
}

// Branches off where the request's row stands: what lies between is computed again, in ordinary arithmetic.
bool Scheduler::start_draft_path(Sequence& sequence) {
    CHECK(!sequence.draft_path, "request {} drafts already", index(sequence.id));
    if (allocation_failed_before_) return false;
    const int64_t length = cache_.state().enabled() ? sequence.num_state_tokens : sequence.num_computed_tokens;
    if (!cache_.make_room({.kv_blocks = deferred_blocks_ + 2, .state_rows = 1}, {})) return false;
    auto memory = cache_.branch(sequence.memory, length);
    if (!memory) return false;  // what was freed is fenced
    DraftPath& path = sequence.draft_path.emplace();
    path.slot = take_slot();
    path.memory = *std::move(memory);
    path.num_computed_tokens = length;
    CHECK(!path.started() && length <= sequence.num_tokens(), "request {} branches off at {} of {}", index(sequence.id),
          length, sequence.num_tokens());
    return true;
}

void Scheduler::plan_draft_start(Sequence& sequence, StepPlan& plan) {
    DraftPath& path = *sequence.draft_path;
    sequence.memory.last_step = step_;  // its row and its tail are read
    sequence.store_output(store_);
    CHECK_EQ(sequence.known.size(), sequence.num_tokens());
    if (path.memory.copy) ++stats_.tail_copies;
    if (cache_.state().enabled()) ++stats_.state_copies;
    path.num_sent_tokens = sequence.num_tokens();
    plan_slot(sequence, path, plan);
}

void Scheduler::plan_draft(Sequence& sequence, int32_t num_new_tokens, StepPlan& plan) {
    DraftPath& path = *sequence.draft_path;
    CHECK(num_new_tokens > 0 && path.memory.last_step < step_, "request {} drafts {} tokens in step {}",
          index(sequence.id), num_new_tokens, step_);
    if (!path.started()) plan_draft_start(sequence, plan);
    const int64_t known = sequence.num_tokens() + static_cast<int64_t>(sequence.drafts.size());
    ScheduledSequence& scheduled = plan.sequences.emplace_back();
    scheduled.slot = path.slot;
    scheduled.arithmetic = Arithmetic::kOrdinary;
    scheduled.num_computed_tokens = path.num_computed_tokens;
    scheduled.num_state_tokens = path.num_computed_tokens;
    scheduled.num_new_tokens = num_new_tokens;
    scheduled.num_sampled_positions = path.num_computed_tokens + num_new_tokens == known ? 1 : 0;
    scheduled.state_src = std::exchange(path.memory.state_src, path.memory.state);
    scheduled.state_dst = path.memory.state;
    scheduled.appended = {static_cast<uint32_t>(plan.tokens.size()),
                          static_cast<uint32_t>(known - path.num_sent_tokens)};
    for (; path.num_sent_tokens < known; ++path.num_sent_tokens) {
        const auto place = static_cast<size_t>(path.num_sent_tokens - sequence.num_prompt_tokens());
        const size_t num_outputs = sequence.output.size();
        plan.tokens.push_back(place < num_outputs ? sequence.output[place] : sequence.drafts[place - num_outputs]);
    }
    scheduled.new_blocks = append_blocks(path, path.memory.blocks.num_blocks, plan);
    CHECK_EQ(path.num_sent_tokens, known);
    path.memory.last_step = step_;
    scheduled_.push_back({&sequence, num_new_tokens, scheduled.num_sampled_positions, true});
}

void Scheduler::end_draft_path(Sequence& sequence) {
    if (!sequence.draft_path) return;
    DraftPath& path = *sequence.draft_path;
    CHECK(path.slot != kNoSlot, "request {} drafts without a slot", index(sequence.id));
    (path.started() ? ended_slots_ : free_slots_).push_back(path.slot);
    cache_.release(path.memory);
    sequence.draft_path.reset();
}

// Gives way to a sequence that computes its request's tokens.
bool Scheduler::end_youngest_draft_path() {
    const auto found = std::find_if(running_.rbegin(), running_.rend(), [&](const Sequence* running) {
        return running->draft_path && running->draft_path->memory.last_step != step_;
    });
    if (found == running_.rend()) return false;
    end_draft_path(**found);
    return true;
}

}  // namespace verbatim
