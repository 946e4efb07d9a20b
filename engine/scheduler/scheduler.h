// engine/scheduler/scheduler.h: who computes how many tokens in the next step (steps 4 and 5).
//
// Continuous batching: every running sequence, oldest first, gets what the token budget and the blocks allow; then waiting ones
// are admitted in order of arrival. Room is made by evicting heads, then by preempting the youngest; what is freed while a
// step is open can be used in the next one, so the next step's needs are looked ahead for.
//   D1  the oldest running sequence is never preempted, and what it asks for is promised first: somebody always finishes
//   D2  running is in order of arrival, and so is waiting; a slot belongs to one sequence until the executor was told its end
//   D3  decisions depend on tokens' counts, heads and pools only: never on who executes or how long it takes
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "engine/cache/cache.h"
#include "engine/recorder.h"
#include "engine/scheduler/sequence.h"
#include "engine/stats.h"
#include "engine/step_plan.h"

namespace verbatim {

struct SchedulerConfig {
    int32_t step_tokens = 512;  // token budget of a step
    int32_t max_num_sequences = 256;
    int32_t max_checkpoints = 4;  // of one request: the first message end and the newest others
    TokenStore* store = nullptr;  // for the tokens that a preempted sequence has generated
};
[[nodiscard]] Status validate(const SchedulerConfig& config);

// A sequence's share of the plan, in plan order. `sequence` is null once it was aborted while the step was open.
struct Scheduled {
    Sequence* sequence = nullptr;
    int32_t num_new_tokens = 0;
    bool samples = false;
};

class Scheduler {
public:
    // Everything is borrowed for the scheduler's life.
    Scheduler(const SchedulerConfig& config, Cache& cache, std::string numerics_id, EngineStats& stats,
              Recorder& recorder);

    void add(Sequence& sequence);  // to the waiting; positions of its snapshots are chosen here
    void schedule(int64_t step, StepPlan& plan);
    // A finished sequence computes nothing more, and keeps its slot until it is removed.
    void retire(Sequence& sequence);
    // The executor has forgotten every slot: none of them needs an end. REQUIRES: no sequence has one.
    void forget_slots();
    // Takes the sequence out of every list and ends its slot; its memory is the caller's to release before.
    void remove(Sequence& sequence);

    [[nodiscard]] const std::vector<Scheduled>& scheduled() const { return scheduled_; }
    [[nodiscard]] const std::vector<Sequence*>& running() const { return running_; }
    [[nodiscard]] const std::deque<Sequence*>& waiting() const { return waiting_; }
    // Snapshots staged in plans, oldest first, with the slot that writes them (kNoSlot once it ended).
    struct Staged {
        PendingId pending{};
        SequenceSlot writer = kNoSlot;
    };
    [[nodiscard]] std::deque<Staged>& staged() { return staged_; }
    [[nodiscard]] bool idle() const { return running_.empty() && waiting_.empty() && ended_slots_.empty(); }
    void verify() const;  // D2 from scratch
    [[nodiscard]] const std::string& numerics_id() const { return numerics_id_; }

private:
    struct Promised {
        int32_t kv_blocks = 0;
        int32_t state_rows = 0;
    };
    [[nodiscard]] int32_t obtain(Sequence& sequence, int32_t wanted);
    [[nodiscard]] bool admit(Sequence& sequence);
    [[nodiscard]] bool attach(Sequence& sequence);
    [[nodiscard]] bool reachable(const Sequence& sequence, const LookupResult& found) const;
    void account_attach(Sequence& sequence, const LookupResult& found);
    void preempt(Sequence& sequence);
    void plan_sequence(Sequence& sequence, int32_t num_new_tokens, StepPlan& plan);
    void plan_start(Sequence& sequence, StepPlan& plan);
    Slice plan_snapshots(Sequence& sequence, int32_t num_new_tokens, StepPlan& plan);
    void look_ahead();
    void end_slot(Sequence& sequence);
    SequenceSlot take_slot();

    SchedulerConfig config_;
    Cache& cache_;
    std::string numerics_id_;
    EngineStats& stats_;
    Recorder& recorder_;

    std::deque<Sequence*> waiting_;
    std::vector<Sequence*> running_;
    std::vector<Scheduled> scheduled_;
    std::deque<Staged> staged_;
    std::vector<SequenceSlot> ended_slots_;  // the executor has not been told yet
    std::vector<SequenceSlot> free_slots_;
    int32_t num_slots_ = 0;
    Promised promised_;  // to running sequences of this step, of what is free or fenced
    bool short_of_room_ = false;
    int64_t step_ = 0;
};

}  // namespace verbatim
