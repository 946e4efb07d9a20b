#include "engine/scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/planted.h"

namespace verbatim {
namespace {

template <typename T>
Slice append(std::vector<T>& all, std::span<const T> part) {
    const Slice slice{static_cast<uint32_t>(all.size()), static_cast<uint32_t>(part.size())};
    all.insert(all.end(), part.begin(), part.end());
    return slice;
}

// Blocks [first, last) of `table`. Found from the end: a step names the newest ones.
Slice append_blocks(std::vector<BlockRun>& all, const BlockTable& table, int32_t first, int32_t last) {
    const auto begin = static_cast<uint32_t>(all.size());
    int32_t run_end = table.num_blocks();
    for (auto run = table.runs().rbegin(); run != table.runs().rend() && run_end > first; ++run) {
        const int32_t run_begin = run_end - run->count;
        const int32_t from = std::max(first, run_begin);
        const int32_t to = std::min(last, run_end);
        if (from < to) all.push_back({static_cast<BlockId>(index(run->first) + from - run_begin), to - from});
        run_end = run_begin;
    }
    std::reverse(all.begin() + begin, all.end());
    return {begin, static_cast<uint32_t>(all.size()) - begin};
}

// The prompt head at prompt length - 1, and message ends below it: the first, and the newest others.
std::vector<Snapshot> choose_snapshots(const Sequence& sequence, int32_t max_checkpoints) {
    const int64_t prompt_head = sequence.num_prompt_tokens() - 1;
    std::vector<Snapshot> chosen;
    for (const int64_t end : sequence.turn.checkpoints) {
        if (end > 0 && end < prompt_head) chosen.push_back({end, HeadKind::kCheckpoint});
    }
    const auto too_many = static_cast<std::ptrdiff_t>(chosen.size()) - max_checkpoints;
    if (too_many > 0) {
        const std::ptrdiff_t keep_first = max_checkpoints > 0 ? 1 : 0;
        chosen.erase(chosen.begin() + keep_first, chosen.begin() + keep_first + too_many);
    }
    if (prompt_head > 0) chosen.push_back({prompt_head, HeadKind::kPrompt});
    return chosen;
}

}  // namespace

Status validate(const SchedulerConfig& config) {
    if (config.step_tokens < 1) return error("step_tokens: {} is not >= 1", config.step_tokens);
    if (config.max_num_sequences < 1) return error("max_num_sequences: {} is not >= 1", config.max_num_sequences);
    if (config.max_checkpoints < 0) return error("max_checkpoints: {} is not >= 0", config.max_checkpoints);
    return {};
}

Scheduler::Scheduler(const SchedulerConfig& config, Cache& cache, std::string numerics_id, EngineStats& stats,
                     Recorder& recorder)
    : config_(config), cache_(cache), numerics_id_(std::move(numerics_id)), stats_(stats), recorder_(recorder) {
    CHECK(validate(config).has_value());
    CHECK(config.store != nullptr);
}

void Scheduler::add(Sequence& sequence) {
    CHECK(waiting_.empty() || waiting_.back()->id < sequence.id);
    sequence.known = sequence.turn.prompt;
    sequence.snapshots = choose_snapshots(sequence, config_.max_checkpoints);
    waiting_.push_back(&sequence);
}

void Scheduler::schedule(int64_t step, StepPlan& plan) {
    step_ = step;
    plan.clear(step);
    cache_.begin_step(step);
    scheduled_.clear();
    promised_ = {};
    short_of_room_ = false;
    plan.ends = ended_slots_;
    free_slots_.insert(free_slots_.end(), ended_slots_.begin(), ended_slots_.end());
    ended_slots_.clear();

    int32_t budget = config_.step_tokens;
    const auto give = [&](Sequence& sequence) {
        const int64_t behind = sequence.num_tokens() - sequence.num_computed_tokens;
        const int32_t granted = obtain(sequence, static_cast<int32_t>(std::min<int64_t>(behind, budget)));
        if (granted > 0) plan_sequence(sequence, granted, plan);
        budget -= granted;
    };
    // Preempting takes from the back of running_, never before `i`.
    for (size_t i = 0; i < running_.size() && budget > 0; ++i) give(*running_[i]);
    while (!waiting_.empty() && budget > 0 && !short_of_room_ &&
           static_cast<int32_t>(running_.size()) < config_.max_num_sequences) {
        Sequence& next = *waiting_.front();
        if (!admit(next)) break;
        give(next);
    }
    look_ahead();
}

// --- room

// Blocks for up to `wanted` more tokens: how many tokens they hold. What is missing is promised to the sequence, and room for it is made
// by evicting heads and preempting younger sequences; it is there in the next step.
int32_t Scheduler::obtain(Sequence& sequence, int32_t wanted) {
    KvGroup& kv = cache_.kv();
    const int64_t target = sequence.num_computed_tokens + wanted;
    const int32_t missing = kv.blocks_missing(sequence.memory.blocks, target);
    if (missing <= kv.pool().num_free()) {
        CHECK(cache_.grow(sequence.memory, target));
        return wanted;
    }
    short_of_room_ = true;
    promised_.kv_blocks += missing;
    while (!cache_.make_room(promised_.kv_blocks, promised_.state_rows)) {
        Sequence& victim = planted(Planted::kOldestPreempted) ? *running_.front() : *running_.back();
        if (&victim == &sequence) break;
        preempt(victim);
    }
    const int64_t capacity = int64_t{sequence.memory.blocks.num_blocks() + kv.pool().num_free()} * kv.block_size();
    const int64_t possible = std::clamp<int64_t>(capacity - sequence.num_computed_tokens, 0, wanted);
    CHECK(cache_.grow(sequence.memory, sequence.num_computed_tokens + possible));
    return static_cast<int32_t>(possible);
}

// Gives everything back; the sequence waits at its old place in the order of arrival and resumes from its newest head.
void Scheduler::preempt(Sequence& sequence) {
    ++stats_.preemptions;
    recorder_.on_event(
        {.kind = EventKind::kPreempt, .step = step_, .request = sequence.id, .value = sequence.num_computed_tokens});
    cache_.release(sequence.memory);
    end_slot(sequence);
    std::erase(running_, &sequence);
    sequence.status = SequenceStatus::kWaiting;
    sequence.store_output(*config_.store);
    if (!planted(Planted::kResumeKeepsComputed)) sequence.num_computed_tokens = 0;
    const auto place = std::ranges::find_if(waiting_, [&](const Sequence* other) { return other->id > sequence.id; });
    waiting_.insert(place, &sequence);
}

// Evicts for what the running sequences need in the next step, so that they do not wait a step for it.
void Scheduler::look_ahead() {
    int32_t budget = config_.step_tokens;
    Promised needed;
    for (size_t i = 0; i < running_.size() && budget > 0; ++i) {
        const Sequence& sequence = *running_[i];
        const bool planned = sequence.planned_step == step_;
        const int64_t computed = planned ? sequence.planned_computed : sequence.num_computed_tokens;
        const int64_t tokens = planned ? sequence.planned_tokens : sequence.num_tokens();
        const auto wanted = static_cast<int32_t>(std::min<int64_t>(tokens - computed, budget));
        budget -= wanted;
        needed.kv_blocks += cache_.kv().blocks_missing(sequence.memory.blocks, computed + wanted);
        const bool passes_snapshot =
            !sequence.snapshots.empty() && sequence.snapshots.front().length <= computed + wanted;
        needed.state_rows += passes_snapshot && cache_.state().enabled() ? 1 : 0;
    }
    (void)cache_.make_room(std::max(needed.kv_blocks, promised_.kv_blocks), needed.state_rows);
}

// --- admission

bool Scheduler::admit(Sequence& sequence) {
    if (!attach(sequence)) return false;
    waiting_.pop_front();
    running_.push_back(&sequence);
    sequence.status = SequenceStatus::kRunning;
    sequence.slot = take_slot();
    sequence.started = false;
    sequence.num_sent_outputs = 0;
    sequence.num_sent_blocks = 0;
    sequence.first_step = -1;
    return true;
}

// Whether evicting every head leaves blocks for all of the sequence's tokens beside those that running sequences hold.
bool Scheduler::reachable(const Sequence& sequence, const LookupResult& found) const {
    const KvGroup& kv = cache_.kv();
    int32_t needed = kv.blocks_for(sequence.num_tokens());
    if (found.head != kNoHead) needed -= kv.num_active_in(cache_.find(found.head)->blocks, found.length);
    return needed <= kv.pool().num_units() - kv.num_active_blocks();
}

bool Scheduler::attach(Sequence& sequence) {
    LookupResult found = cache_.lookup({.key = sequence.request.conversation,
                                        .tokens = sequence.known,
                                        .num_committed = sequence.turn.num_committed,
                                        .seam = sequence.turn.seam,
                                        .use_cache = sequence.request.use_cache,
                                        .deterministic = sequence.request.deterministic,
                                        .numerics_id = numerics_id_});
    if (sequence.no_room_to_copy && found.head != kNoHead) {
        found.not_reused.insert(found.not_reused.begin(), {found.length, NotReused::kNoRoomToCopy});
        found.head = kNoHead;
        found.length = 0;
    }
    // Evicting for a sequence that cannot come in anyway would empty the cache for nothing.
    if (!running_.empty() && !reachable(sequence, found)) return false;
    auto memory = cache_.attach(found.head);
    if (!memory) {
        const bool made = cache_.make_room(1, 1, found.head);
        const bool others_will_free = !running_.empty() || cache_.num_pendings() > 0;
        if (made || others_will_free) return false;
        // Only the head itself stands in the way: compute from zero, and let it be evicted.
        sequence.no_room_to_copy = true;
        sequence.not_reused = found.not_reused;
        sequence.not_reused.insert(sequence.not_reused.begin(), {found.length, NotReused::kNoRoomToCopy});
        (void)cache_.make_room(1, 1);
        return false;
    }
    sequence.memory = std::move(*memory);
    const bool own = found.head == kNoHead || cache_.find(found.head)->numerics_id == numerics_id_;
    sequence.numerics_id = own ? numerics_id_ : kMixedNumericsId;
    sequence.num_computed_tokens = std::max(found.length, sequence.num_computed_tokens);
    account_attach(sequence, found);
    return true;
}

void Scheduler::account_attach(Sequence& sequence, const LookupResult& found) {
    recorder_.on_event(
        {.kind = EventKind::kAttach, .step = step_, .request = sequence.id, .head = found.head, .value = found.length});
    if (sequence.memory.copy) {
        ++stats_.tail_copies;
        recorder_.on_event({.kind = EventKind::kTailCopy,
                            .step = step_,
                            .request = sequence.id,
                            .head = found.head,
                            .value = sequence.memory.copy->num_slots});
    }
    if (found.head != kNoHead) ++stats_.attaches;
    if (!std::exchange(sequence.no_room_to_copy, false)) sequence.not_reused = found.not_reused;
    const int64_t reused = std::min(found.length, sequence.num_prompt_tokens());
    const int64_t before = std::min(sequence.high_water, sequence.num_prompt_tokens());
    if (reused > before) {
        sequence.num_reused += reused - before;
        stats_.reused_tokens += reused - before;
    }
    sequence.high_water = std::max(sequence.high_water, found.length);
    std::erase_if(sequence.snapshots, [&](const Snapshot& s) { return s.length <= found.length; });
}

// --- the plan

void Scheduler::plan_sequence(Sequence& sequence, int32_t num_new_tokens, StepPlan& plan) {
    if (!sequence.started) plan_start(sequence, plan);
    SequenceMemory& memory = sequence.memory;
    ScheduledSequence scheduled{
        .slot = sequence.slot, .num_computed_tokens = sequence.num_computed_tokens, .num_new_tokens = num_new_tokens};
    const int64_t end = sequence.num_computed_tokens + num_new_tokens;
    scheduled.samples = end == sequence.num_tokens() && !sequence.prefill_only();
    scheduled.state_src = memory.state_src;
    scheduled.state_dst = memory.state;
    scheduled.appended =
        append(plan.tokens, std::span<const TokenId>(sequence.output).subspan(sequence.num_sent_outputs));
    sequence.num_sent_outputs = sequence.output.size();
    scheduled.new_blocks =
        append_blocks(plan.blocks, memory.blocks, sequence.num_sent_blocks, memory.blocks.num_blocks());
    sequence.num_sent_blocks = memory.blocks.num_blocks();
    scheduled.state_writes = plan_snapshots(sequence, num_new_tokens, plan);
    memory.state_src = memory.state;
    sequence.planned_step = step_;
    sequence.planned_tokens = sequence.num_tokens() + (scheduled.samples ? 1 : 0);
    sequence.planned_computed = end;
    plan.sequences.push_back(scheduled);
    scheduled_.push_back({&sequence, num_new_tokens, scheduled.samples});
}

void Scheduler::plan_start(Sequence& sequence, StepPlan& plan) {
    SequenceMemory& memory = sequence.memory;
    SequenceStart start{.slot = sequence.slot,
                        .request = sequence.id,
                        .tokens = sequence.known,
                        .num_prompt_tokens = sequence.num_prompt_tokens(),
                        .num_computed_tokens = sequence.num_computed_tokens,
                        .sampling = sequence.request.sampling};
    start.blocks = append_blocks(plan.blocks, memory.blocks, 0, memory.num_shared_blocks);
    plan.starts.push_back(std::move(start));
    if (memory.copy) plan.copies.push_back(*std::exchange(memory.copy, std::nullopt));
    if (memory.pinned != kNoHead && cache_.state().enabled()) ++stats_.state_copies;
    sequence.started = true;
    sequence.num_sent_outputs = sequence.output.size();
    sequence.num_sent_blocks = memory.num_shared_blocks;
    sequence.first_step = step_;
}

// Stages a pending for every snapshot position that this step passes. One without a free row is not taken.
Slice Scheduler::plan_snapshots(Sequence& sequence, int32_t num_new_tokens, StepPlan& plan) {
    const auto begin = static_cast<uint32_t>(plan.state_writes.size());
    const int64_t end = sequence.num_computed_tokens + num_new_tokens;
    auto& snapshots = sequence.snapshots;
    for (; !snapshots.empty() && snapshots.front().length <= end; snapshots.erase(snapshots.begin())) {
        const Snapshot snapshot = snapshots.front();
        auto pending = cache_.snapshot(sequence.memory, sequence.turn.prompt.slice(0, snapshot.length));
        if (!pending) {
            ++stats_.snapshots_without_room;
            continue;
        }
        pending->request = sequence.id;
        pending->key = sequence.request.conversation;
        pending->kind = snapshot.kind;
        pending->numerics_id = sequence.numerics_id;
        pending->staged_step = step_;
        const bool one_short = planted(Planted::kGroupsDiffer) && snapshot.length - 1 > sequence.num_computed_tokens;
        if (pending->state != kNoState) {
            plan.state_writes.push_back({one_short ? snapshot.length - 1 : snapshot.length, pending->state});
        }
        staged_.push_back({cache_.stage(std::move(*pending)), sequence.slot});
        recorder_.on_event(
            {.kind = EventKind::kStage, .step = step_, .request = sequence.id, .value = snapshot.length});
    }
    return {begin, static_cast<uint32_t>(plan.state_writes.size()) - begin};
}

// --- slots

void Scheduler::retire(Sequence& sequence) {
    std::erase(running_, &sequence);
    sequence.status = SequenceStatus::kCommitting;
}

void Scheduler::remove(Sequence& sequence) {
    for (Scheduled& scheduled : scheduled_) {
        if (scheduled.sequence == &sequence) scheduled.sequence = nullptr;
    }
    std::erase(running_, &sequence);
    std::erase(waiting_, &sequence);
    end_slot(sequence);
}

void Scheduler::forget_slots() {
    CHECK(running_.empty());
    free_slots_.insert(free_slots_.end(), ended_slots_.begin(), ended_slots_.end());
    ended_slots_.clear();
}

void Scheduler::end_slot(Sequence& sequence) {
    if (sequence.slot == kNoSlot) return;
    for (Staged& staged : staged_) {
        if (staged.writer == sequence.slot) staged.writer = kNoSlot;
    }
    (sequence.started ? ended_slots_ : free_slots_).push_back(sequence.slot);
    sequence.slot = kNoSlot;
    sequence.started = false;
}

SequenceSlot Scheduler::take_slot() {
    if (free_slots_.empty()) return static_cast<SequenceSlot>(num_slots_++);
    const auto lowest = std::ranges::min_element(free_slots_);
    const SequenceSlot slot = *lowest;
    free_slots_.erase(lowest);
    return slot;
}

void Scheduler::verify() const {
    for (size_t i = 1; i < waiting_.size(); ++i) CHECK_LT(index(waiting_[i - 1]->id), index(waiting_[i]->id));
    for (size_t i = 1; i < running_.size(); ++i) CHECK_LT(index(running_[i - 1]->id), index(running_[i]->id));
    CHECK(running_.empty() || waiting_.empty() || running_.back()->id < waiting_.front()->id);
    std::vector<SequenceSlot> taken = free_slots_;
    taken.insert(taken.end(), ended_slots_.begin(), ended_slots_.end());
    for (const Sequence* sequence : running_) {
        CHECK(sequence->status == SequenceStatus::kRunning && sequence->slot != kNoSlot);
        taken.push_back(sequence->slot);
    }
    for (const Sequence* sequence : waiting_) {
        CHECK(sequence->status == SequenceStatus::kWaiting && sequence->slot == kNoSlot);
        CHECK(sequence->memory.blocks.num_blocks() == 0 && sequence->memory.state == kNoState);
    }
    std::ranges::sort(taken);
    CHECK(std::ranges::adjacent_find(taken) == taken.end(), "a slot has two owners");
    CHECK_LE(taken.size(), static_cast<size_t>(num_slots_));
}

}  // namespace verbatim
