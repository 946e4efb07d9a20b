#include "engine/scheduler/scheduler.h"

#include <algorithm>
#include <iterator>
#include <ranges>
#include <utility>

#include "engine/base/check.h"
#include "engine/slot_tables.h"

namespace verbatim {
namespace {

template <typename T>
Slice append(std::vector<T>& all, std::span<const T> part) {
    const Slice slice{static_cast<uint32_t>(all.size()), static_cast<uint32_t>(part.size())};
    all.insert(all.end(), part.begin(), part.end());
    return slice;
}

}  // namespace

std::vector<std::string> problems_of(const SchedulerConfig& config) {
    std::vector<std::string> problems;
    const auto at_least = [&](const char* field, int32_t value, int32_t least) {
        if (value < least) problems.push_back(fmt::format("{}: {} is not >= {}", field, value, least));
    };
    at_least("step_tokens", config.step_tokens, 1);
    at_least("max_num_sequences", config.max_num_sequences, 1);
    if (config.max_num_sequences > kMaxSlots / 2)
        problems.push_back(fmt::format("max_num_sequences: {} is not <= {}", config.max_num_sequences, kMaxSlots / 2));
    at_least("max_checkpoints", config.max_checkpoints, 0);
    at_least("max_window", config.max_window, 1);
    at_least("max_row_lag", config.max_state_lag_tokens, 0);
    at_least("verify_tokens", config.verify_tokens, 0);
    at_least("max_wait_steps", config.max_wait_steps, 0);
    if (config.admission >= AdmissionOrder::kCount)
        problems.push_back(fmt::format("admission: {} is no order", static_cast<int>(config.admission)));
    return problems;
}

Status validate(const SchedulerConfig& config) {
    const std::vector<std::string> problems = problems_of(config);
    if (problems.empty()) return {};
    return error("scheduler: {}", fmt::join(problems, "; "));
}

NumericsIds numerics_ids_of(const Executor& executor) {
    return {executor.numerics_id(), executor.ordinary_numerics_id()};
}

Scheduler::Scheduler(const SchedulerConfig& config, const SchedulerParts& parts, NumericsIds numerics_ids)
    : config_(config),
      cache_(parts.cache),
      publication_(parts.publication),
      store_(parts.store),
      stats_(parts.stats),
      recorder_(parts.recorder),
      numerics_ids_(std::move(numerics_ids)) {
    CHECK(validate(config).has_value());
}

void Scheduler::schedule(int64_t step, StepPlan& plan) {
    CHECK_GE(step, plan.step);
    step_ = step;
    plan.clear(step);
    scheduled_.clear();
    deferred_blocks_ = 0;
    allocation_failed_before_ = std::exchange(allocation_failed_, false);
    verify_budget_ = config_.verify_tokens;
    score_budget_ = kMaxScoredPositions;
    int32_t budget = config_.step_tokens;
    // Preempting takes from the back of running_, never before `i`.
    for (size_t i = 0; i < running_.size(); ++i) schedule_sequence(*running_[i], budget, plan);
    while (!waiting_.empty() && budget > 0 && !allocation_failed_ &&
           static_cast<int32_t>(running_.size()) < config_.max_num_sequences) {
        const Admission admission = admit(next_to_admit(), budget);
        if (admission == Admission::kAwaitsHead) break;
        if (admission == Admission::kNoRoom) {
            ++stats_.steps_without_room;
            allocation_failed_ = true;
            (void)end_youngest_draft_path();
            break;
        }
        schedule_sequence(*running_.back(), budget, plan);
    }
    CHECK_GE(budget, 0);
    order_by_admission(plan);
    // A slot that ended is free for the next step: this one's plan tells its end.
    plan.finished_slots = ended_slots_;
    free_slots_.insert(free_slots_.end(), ended_slots_.begin(), ended_slots_.end());
    ended_slots_.clear();
}

void Scheduler::schedule_sequence(Sequence& sequence, int32_t& budget, StepPlan& plan) {
    CHECK(budget >= 0 && sequence.status == SequenceStatus::kRunning, "request {} of status {} shares {} tokens",
          index(sequence.id), static_cast<int>(sequence.status), budget);
    if (sequence.ending) return plan_state_catch_up(sequence, plan);
    if (budget == 0) return;
    if (verifies(sequence)) return schedule_verification(sequence, budget, plan);
    const int64_t behind = sequence.num_tokens() - sequence.num_computed_tokens;
    const int32_t wanted = most_for(sequence, budget);
    if (wanted == 0) return;
    int32_t granted = allocate_blocks_for(sequence, wanted);
    if (granted == behind) granted += allocate_blocks_for_drafts(sequence, budget - granted);
    if (granted > 0) plan_sequence(sequence, granted, plan);
    budget -= granted;
    CHECK(budget >= 0, "{} tokens too many are computed", -budget);
}

// How many of its tokens the sequence may compute next. The oldest one that is scored always gets some.
int32_t Scheduler::most_for(const Sequence& sequence, int32_t budget) const {
    CHECK(budget > 0 && score_budget_ >= 0, "{} tokens are left, {} to score", budget, score_budget_);
    const int64_t begin = sequence.num_computed_tokens;
    // The last position samples: where it waits for its mask it stays for a later step.
    int64_t end = std::min(sequence.num_tokens() - (sequence.waits_for_mask() ? 1 : 0), begin + budget);
    if (sequence.is_scored()) end = std::min(end, std::max(begin, sequence.first_scored) + score_budget_);
    return static_cast<int32_t>(end - begin);
}

// --- room

// Blocks for up to `wanted` more tokens: how many tokens they hold. Room is made by evicting heads and by preempting
// younger sequences. Blocks that a sequence has just left may be fenced: then they are owed, and there in a later step.
int32_t Scheduler::allocate_blocks_for(Sequence& sequence, int32_t wanted) {
    CHECK_GE(wanted, 0);
    KvGroup& kv = cache_.kv();
    const int64_t target = sequence.num_computed_tokens + wanted;
    const int32_t missing = kv.blocks_missing(sequence.memory.blocks, target);
    if (missing == 0) return wanted;
    if (missing <= kv.pool().num_free()) {
        CHECK(cache_.grow(sequence.memory, target));
        return wanted;
    }
    while (!cache_.make_room({.kv_blocks = deferred_blocks_ + missing}, {.spare_expected = false})) {
        allocation_failed_ = true;
        if (end_youngest_draft_path()) continue;
        Sequence* victim = youngest_to_preempt();
        if (victim == nullptr || victim == &sequence) break;
        preempt(*victim);
    }
    const int32_t obtained = std::min(missing, kv.pool().num_free());
    const int64_t capacity = int64_t{sequence.memory.blocks.num_blocks + obtained} * kv.block_size();
    const int64_t possible = std::clamp<int64_t>(capacity - sequence.num_computed_tokens, 0, wanted);
    CHECK(cache_.grow(sequence.memory, sequence.num_computed_tokens + possible));
    deferred_blocks_ += missing - obtained;
    allocation_failed_ |= obtained < missing;
    return static_cast<int32_t>(possible);
}

// How many of the drafts there are tokens of the budget and blocks for, that are free for them.
int32_t Scheduler::allocate_blocks_for_drafts(Sequence& sequence, int32_t budget) {
    CHECK_GE(budget, 0);
    if (sequence.drafts.empty()) return 0;
    KvGroup& kv = cache_.kv();
    const int32_t num_free = std::max(0, kv.pool().num_free() - deferred_blocks_);
    int64_t num_drafts = std::min<int64_t>(static_cast<int64_t>(sequence.drafts.size()), budget);
    if (kv.enabled()) {
        const int64_t capacity = int64_t{sequence.memory.blocks.num_blocks + num_free} * kv.block_size();
        num_drafts = std::clamp<int64_t>(capacity - sequence.num_tokens(), 0, num_drafts);
    }
    sequence.drafts.resize(static_cast<size_t>(num_drafts));
    CHECK(cache_.grow(sequence.memory, sequence.num_tokens() + num_drafts));
    return static_cast<int32_t>(num_drafts);
}

// The one admitted last. While its turn is over there is none: it gives its memory back in the next step, and an
// older one that went now would come back behind it (D2).
Sequence* Scheduler::youngest_to_preempt() const {
    return running_.empty() || running_.back()->ending ? nullptr : running_.back();
}

// Gives everything back; the sequence waits with the age that it has, at its old place in the order of arrival, and
// resumes from its newest head.
void Scheduler::preempt(Sequence& sequence) {
    CHECK(sequence.status == SequenceStatus::kRunning && sequence.planned_step != step_, "request {} is in step {}",
          index(sequence.id), step_);
    CHECK(!sequence.draft_path, "request {} drafts: its path goes first", index(sequence.id));
    ++stats_.preemptions;
    event(EventKind::kPreempt, sequence, sequence.num_computed_tokens);
    cache_.release(sequence.memory);
    end_slot(sequence);
    std::erase(running_, &sequence);
    sequence.store_output(store_);
    sequence.num_computed_tokens = 0;
    sequence.drafts.clear();
    wait(sequence);
}

// --- the plan

// Its drafts are the last of the new tokens.
void Scheduler::plan_sequence(Sequence& sequence, int32_t num_new_tokens, StepPlan& plan) {
    CHECK_GT(num_new_tokens, 0);
    if (!sequence.started) plan_start(sequence, plan);
    SequenceMemory& memory = sequence.memory;
    const int64_t end = sequence.num_computed_tokens + num_new_tokens;
    const int64_t known_end = std::min(end, sequence.num_tokens());
    CHECK(end - known_end <= static_cast<int64_t>(sequence.drafts.size()) &&
              memory.blocks.num_blocks >= cache_.kv().blocks_for(end),
          "request {} computes up to {} of {} tokens and {} drafts in {} blocks", index(sequence.id), end,
          sequence.num_tokens(), sequence.drafts.size(), memory.blocks.num_blocks);
    ScheduledSequence& scheduled = begin_plan(sequence, plan);
    scheduled.num_new_tokens = num_new_tokens;
    const bool draws = known_end == sequence.num_tokens() && !sequence.prefill_only();
    scheduled.num_sampled_positions = draws ? 1 + static_cast<int32_t>(end - known_end) : 0;
    scheduled.num_scored_positions = sequence.num_scored_up_to(known_end);
    CHECK_LE(scheduled.num_logit_positions(), num_new_tokens);
    if (draws && sequence.has_grammar() && !sequence.lacks_mask()) plan_mask(sequence, scheduled, plan);
    sequence.is_late = draws && sequence.lacks_mask();
    score_budget_ -= scheduled.num_scored_positions;
    sequence.first_scored = std::max(sequence.first_scored, std::min(known_end, sequence.scored_end()));
    const bool leaves = defers_state_write(sequence, known_end);
    scheduled.state_src = std::exchange(memory.state_src, memory.state);
    scheduled.state_dst = leaves ? kNoState : memory.state;
    plan.tokens.insert(plan.tokens.end(), sequence.drafts.begin(), sequence.drafts.end());
    scheduled.appended.count += static_cast<uint32_t>(sequence.drafts.size());
    sequence.drafts.clear();
    scheduled.new_blocks = append_blocks(sequence, memory.blocks.num_blocks, plan);
    scheduled.state_writes = plan_snapshots(sequence, num_new_tokens, plan);
    if (leaves) {
        ++stats_.unwritten_rows;
    } else {
        sequence.num_state_tokens = known_end;
    }
    scheduled_.push_back({&sequence, num_new_tokens, scheduled.num_sampled_positions});
}

// In the order of the plan, as if they had all come before it.
void Scheduler::plan_late_masks(StepPlan& plan) const {
    CHECK_EQ(plan.sequences.size(), scheduled_.size());
    plan.mask_runs.clear();
    for (size_t i = 0; i < scheduled_.size(); ++i) {
        const Sequence* sequence = scheduled_[i].sequence;
        CHECK(sequence != nullptr, "a request of step {} was aborted, and masks are missing", plan.step);
        ScheduledSequence& scheduled = plan.sequences[i];
        const bool draws = scheduled.num_sampled_positions > 0 && !scheduled_[i].is_draft;
        if (draws && sequence->has_grammar()) plan_mask(*sequence, scheduled, plan);
    }
}

void Scheduler::plan_mask(const Sequence& sequence, ScheduledSequence& scheduled, StepPlan& plan) {
    CHECK(!sequence.masks.empty() && scheduled.num_sampled_positions == 1, "request {} samples {} times under {} masks",
          index(sequence.id), scheduled.num_sampled_positions, sequence.masks.size());
    scheduled.mask = append(plan.mask_runs, std::span<const int32_t>(sequence.masks.front().runs));
}

// Whether the step leaves the row where it is. Never the first step of an attached sequence, whose row is the head's
// yet, nor the one with the last token that it may draw: there its head is taken.
bool Scheduler::defers_state_write(const Sequence& sequence, int64_t known_end) const {
    if (!cache_.state().enabled() || !sequence.decodes() || sequence.memory.state_src != sequence.memory.state) {
        return false;
    }
    const bool is_last = static_cast<int64_t>(sequence.output.size()) + 1 >= sequence.max_tokens;
    return !is_last && known_end - sequence.num_state_tokens <= config_.max_state_lag_tokens;
}

// The turn ended where its row does not stand: the row takes in what was accepted before its end.
void Scheduler::plan_state_catch_up(Sequence& sequence, StepPlan& plan) {
    CHECK(cache_.state().enabled() && sequence.num_state_tokens < sequence.num_computed_tokens,
          "request {} moves its row from {} to {}", index(sequence.id), sequence.num_state_tokens,
          sequence.num_computed_tokens);
    ScheduledSequence& scheduled = begin_plan(sequence, plan);
    scheduled.state_src = scheduled.state_dst = sequence.memory.state;
    sequence.num_state_tokens = sequence.num_computed_tokens;
    scheduled_.push_back({&sequence});
}

// Where the sequence stands, and the tokens that the executor does not know yet.
ScheduledSequence& Scheduler::begin_plan(Sequence& sequence, StepPlan& plan) {
    CHECK(sequence.slot != kNoSlot && sequence.planned_step < step_, "request {} has a share in step {} already",
          index(sequence.id), step_);
    CHECK_LE(sequence.num_sent_outputs, sequence.output.size());
    ScheduledSequence& scheduled = plan.sequences.emplace_back();
    scheduled.slot = sequence.slot;
    scheduled.arithmetic = sequence.arithmetic();
    scheduled.num_computed_tokens = sequence.num_computed_tokens;
    scheduled.num_state_tokens = cache_.state().enabled() ? sequence.num_state_tokens : sequence.num_computed_tokens;
    scheduled.appended =
        append(plan.tokens, std::span<const TokenId>(sequence.output).subspan(sequence.num_sent_outputs));
    sequence.num_sent_outputs = sequence.output.size();
    sequence.memory.last_step = step_;
    sequence.planned_step = step_;
    return scheduled;
}

// The blocks that the executor does not know yet, up to the first `last` of the table.
Slice Scheduler::append_blocks(SlotUse& use, int32_t last, StepPlan& plan) const {
    const auto begin = static_cast<uint32_t>(plan.blocks.size());
    if (last > use.num_sent_blocks) {
        cache_.kv().append_runs(use.memory.blocks, use.num_sent_blocks, last, plan.blocks);
        use.num_sent_blocks = last;
    }
    return {begin, static_cast<uint32_t>(plan.blocks.size()) - begin};
}

void Scheduler::plan_start(Sequence& sequence, StepPlan& plan) {
    CHECK(!sequence.started && sequence.known.size() == sequence.num_tokens(), "request {} starts with {} tokens of {}",
          index(sequence.id), sequence.known.size(), sequence.num_tokens());
    if (sequence.memory.pinned != kNoHead && cache_.state().enabled()) ++stats_.state_copies;
    sequence.started = true;
    sequence.num_sent_outputs = sequence.output.size();
    sequence.first_step = step_;
    plan_slot(sequence, sequence, plan);
}

// The executor learns of the slot, of what it shares with a head and of the tail that it copies: the slot's admission.
void Scheduler::plan_slot(const Sequence& sequence, SlotUse& use, StepPlan& plan) {
    CHECK(use.slot != kNoSlot && use.num_sent_blocks == 0, "request {} starts in slot {} with {} blocks sent",
          index(sequence.id), index(use.slot), use.num_sent_blocks);
    SequenceStart start{.slot = use.slot,
                        .request = sequence.id,
                        .tokens = sequence.known,
                        .num_prompt_tokens = sequence.num_prompt_tokens(),
                        .num_computed_tokens = use.num_computed_tokens,
                        .sampling = sequence.request.sampling};
    start.blocks = append_blocks(use, use.memory.num_shared_blocks, plan);
    plan.new_sequences.push_back(std::move(start));
    if (use.memory.copy) plan.copies.push_back(*std::exchange(use.memory.copy, std::nullopt));
    use.admission = num_admissions_++;
}

// Plans name slots in order of their admission (P1): a draft path starts whenever its request needs one, and a sequence
// that had to wait for positions to score or for its mask starts behind younger ones.
void Scheduler::order_by_admission(StepPlan& plan) {
    CHECK_EQ(scheduled_.size(), plan.sequences.size());
    const auto admission = [&](size_t i) {
        const Scheduled& share = scheduled_[i];
        return share.is_draft ? share.sequence->draft_path->admission : share.sequence->admission;
    };
    const auto indices = std::views::iota(size_t{0}, scheduled_.size());
    if (std::ranges::is_sorted(indices, {}, admission)) return;
    std::vector<size_t> order;
    std::ranges::copy(indices, std::back_inserter(order));
    std::ranges::sort(order, {}, admission);
    std::vector<Scheduled> scheduled;
    std::vector<ScheduledSequence> sequences;
    for (const size_t i : order) {
        scheduled.push_back(scheduled_[i]);
        sequences.push_back(plan.sequences[i]);
    }
    scheduled_ = std::move(scheduled);
    plan.sequences = std::move(sequences);
}

// Stages a pending for every snapshot position that this step passes. For its row a snapshot takes the place of an
// older one that has not been used, never of a turn's head: without a row it is not taken.
Slice Scheduler::plan_snapshots(Sequence& sequence, int32_t num_new_tokens, StepPlan& plan) {
    const auto begin = static_cast<uint32_t>(plan.state_writes.size());
    const int64_t end = sequence.num_computed_tokens + num_new_tokens;
    auto& snapshots = sequence.snapshots;
    for (; !snapshots.empty() && snapshots.front().length <= end; snapshots.erase(snapshots.begin())) {
        const Snapshot snapshot = snapshots.front();
        CHECK_GT(snapshot.length, sequence.num_computed_tokens);
        (void)cache_.make_room({.state_rows = 1}, {.spare_proven = true});
        const auto row = publication_.stage_snapshot(sequence, snapshot, step_);
        if (!row) {
            ++stats_.snapshots_without_room;
            continue;
        }
        if (*row != kNoState) plan.state_writes.push_back({snapshot.length, *row});
        event(EventKind::kStage, sequence, snapshot.length);
    }
    return {begin, static_cast<uint32_t>(plan.state_writes.size()) - begin};
}

bool Scheduler::waits_for_masks() const {
    const auto waits = [](const Sequence* sequence) {
        return sequence->waits_for_mask() && sequence->num_computed_tokens == sequence->num_tokens() - 1;
    };
    return !running_.empty() && ended_slots_.empty() && std::ranges::all_of(running_, waits);
}

void Scheduler::has_decoded(Sequence& sequence, int64_t last_step) const {
    sequence.num_sent_outputs = sequence.output.size() - 1;
    sequence.num_sent_blocks = sequence.memory.blocks.num_blocks;
    if (cache_.state().enabled()) sequence.num_state_tokens = sequence.num_computed_tokens;
    sequence.memory.last_step = last_step;
    sequence.planned_step = last_step;
}

// --- slots

void Scheduler::retire(Sequence& sequence) {
    CHECK(sequence.status == SequenceStatus::kRunning, "request {} retires in status {}", index(sequence.id),
          static_cast<int>(sequence.status));
    CHECK_EQ(std::erase(running_, &sequence), 1u);
    end_draft_path(sequence);
    sequence.status = SequenceStatus::kCommitting;
}

void Scheduler::remove(Sequence& sequence) {
    CHECK(sequence.memory.blocks.num_blocks == 0 && sequence.memory.state == kNoState, "request {} goes with {} blocks",
          index(sequence.id), sequence.memory.blocks.num_blocks);
    for (Scheduled& scheduled : scheduled_) {
        if (scheduled.sequence == &sequence) scheduled.sequence = nullptr;
    }
    std::erase(running_, &sequence);
    leave_waiting(sequence);
    end_draft_path(sequence);
    end_slot(sequence);
}

void Scheduler::forget_slots() {
    CHECK(running_.empty());
    free_slots_.insert(free_slots_.end(), ended_slots_.begin(), ended_slots_.end());
    ended_slots_.clear();
    CHECK_EQ(free_slots_.size(), static_cast<size_t>(num_slots_));
}

void Scheduler::end_slot(Sequence& sequence) {
    if (sequence.slot == kNoSlot) return;
    CHECK(std::ranges::count(free_slots_, sequence.slot) == 0, "slot {} of request {} is free", index(sequence.slot),
          index(sequence.id));
    publication_.writer_ended(sequence.slot);
    (sequence.started ? ended_slots_ : free_slots_).push_back(sequence.slot);
    sequence.slot = kNoSlot;
    sequence.started = false;
}

SequenceSlot Scheduler::take_slot() {
    if (free_slots_.empty()) return static_cast<SequenceSlot>(num_slots_++);
    const auto lowest = std::ranges::min_element(free_slots_);
    const SequenceSlot slot = *lowest;
    free_slots_.erase(lowest);
    CHECK_LT(index(slot), num_slots_);
    return slot;
}

void Scheduler::event(EventKind kind, const Sequence& sequence, int64_t value, HeadId head) {
    CHECK(kind < EventKind::kCount && value >= 0, "event {} of request {} with {}", static_cast<int>(kind),
          index(sequence.id), value);
    recorder_.on_event({.kind = kind, .step = step_, .request = sequence.id, .head = head, .value = value});
}

void Scheduler::verify() const {
    verify_order();
    std::vector<SequenceSlot> taken = free_slots_;
    taken.insert(taken.end(), ended_slots_.begin(), ended_slots_.end());
    for (const Sequence* sequence : running_) {
        CHECK(sequence->status == SequenceStatus::kRunning && sequence->slot != kNoSlot);
        taken.push_back(sequence->slot);
        if (sequence->draft_path) taken.push_back(sequence->draft_path->slot);
    }
    std::vector<HeadId> expected;
    for (const auto& [id, sequence] : waiting_) {
        CHECK(id == sequence->id && sequence->status == SequenceStatus::kWaiting && sequence->slot == kNoSlot);
        CHECK(sequence->memory.blocks.num_blocks == 0 && sequence->memory.state == kNoState);
        if (sequence->expected_head != kNoHead) expected.push_back(sequence->expected_head);
    }
    cache_.verify_expected(expected);
    std::ranges::sort(taken);
    CHECK(std::ranges::adjacent_find(taken) == taken.end(), "a slot has two owners");
    CHECK_LE(taken.size(), static_cast<size_t>(num_slots_));
}

}  // namespace verbatim
