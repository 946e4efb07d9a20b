// engine/scheduler/scheduler.h: chooses which sequences compute how many tokens in the next step (steps 4 and 5).
//
// Continuous batching: every running sequence, in order of admission, is scheduled as far as the token budget and the
// blocks allow. Then waiting sequences are admitted (admission.cc), each with room for its first chunk. Room is made by
// evicting heads, and for running sequences also by preempting the youngest. An evicted head's memory can be used at
// once, a sequence's memory when its last step is complete. Oldest and youngest are by admission, which with
// AdmissionOrder::kArrival is by arrival.
//   D1  the oldest running sequence is never preempted, and its blocks are allocated first: one sequence always
//       finishes
//   D2  running_ is in order of admission. With kArrival the oldest waiting sequence is admitted next. With
//       kFewestTokens it is the oldest of the sequences that have waited for max_wait_steps, or without such a sequence
//       the one with the fewest tokens left to compute, given the heads of the last lookup (the admitted sequence's
//       lookup is made again). A slot belongs to one sequence until a plan has ended it
//   D3  decisions depend on counts of tokens, heads and pools only: never on the executor or on time
//   D4  drafts use the budget and the free blocks that are left, draft paths also the blocks of heads: no sequence is
//       preempted for a draft, and a draft path ends where a sequence needs its memory
//   D5  a head that a waiting request will attach to is not evicted to admit another request while any sequence runs
//   D6  under one budget of bytes, a request that is admitted by evicting heads waits while those that run would hold
//       more with it than their share (RunningShare). The next request in order waits for it: no other takes it
//   D7  a request whose head is awaited (AttachListener) is not admitted, and none behind it in order
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/cache/cache.h"
#include "engine/executor.h"
#include "engine/publication/publication.h"
#include "engine/recorder.h"
#include "engine/scheduler/running_share.h"
#include "engine/scheduler/sequence.h"
#include "engine/stats.h"
#include "engine/step_plan.h"

namespace verbatim {

// Which waiting request is admitted next (D2).
enum class AdmissionOrder : uint8_t {
    kArrival,
    kFewestTokens,  // left to compute: a shorter mean wait, a longer one for long prompts
    kCount,
};
inline constexpr std::array kAdmissionOrders = {AdmissionOrder::kArrival, AdmissionOrder::kFewestTokens};
static_assert(kAdmissionOrders.size() == static_cast<size_t>(AdmissionOrder::kCount));
[[nodiscard]] const char* name(AdmissionOrder order);
[[nodiscard]] std::optional<AdmissionOrder> admission_order_by_name(std::string_view wanted);

struct SchedulerConfig {
    int32_t step_tokens = 512;  // token budget of a step
    int32_t max_num_sequences = 256;
    int32_t max_checkpoints = 4;  // of one request: the first message end and the newest others
    int32_t max_window = 1;       // sampled positions of a request in one step: the last known token's and the drafts'
    bool paced_windows = false;   // windows follow what was accepted so far (engine/drafting/pacing.h)
    // By how many known tokens the state row of a decoding request may lag; the state log stands for them. 0: the row
    // is written in every step.
    int32_t max_state_lag_tokens = 0;
    // > 0: deterministic requests draft in ordinary arithmetic (draft_path.h), and at most so many tokens of a step's
    // budget verify. 0: deterministic requests have no draft paths.
    int32_t verify_tokens = 0;
    AdmissionOrder admission = AdmissionOrder::kArrival;
    int32_t max_wait_steps = 100;  // kFewestTokens: a request that has waited for so many is admitted first
    // The tokens that an executor's log of a sequence must hold: the row's lag, and a window's drafts.
    [[nodiscard]] int32_t max_log_tokens() const { return max_state_lag_tokens + max_window - 1; }
};
[[nodiscard]] std::vector<std::string> problems_of(const SchedulerConfig& config);
[[nodiscard]] Status validate(const SchedulerConfig& config);

// A sequence's share of the plan, in plan order. `sequence` is null once it was aborted while the step was open.
struct Scheduled {
    Sequence* sequence = nullptr;
    int32_t num_new_tokens = 0;
    int32_t num_sampled_positions = 0;
    bool is_draft = false;  // the share of its draft path
};

// What makes an executor's bits, by Arithmetic.
using NumericsIds = std::array<std::string, static_cast<size_t>(Arithmetic::kCount)>;
[[nodiscard]] NumericsIds numerics_ids_of(const Executor& executor);

// What a scheduler works with; all of it is borrowed for its life.
struct SchedulerParts {
    Cache& cache;
    Publication& publication;
    TokenStore& store;  // for the tokens that a preempted sequence has generated
    EngineStats& stats;
    Recorder& recorder;
};

// Asked for each request that would be admitted now, before room is made for it: it would attach to a head of `length`
// tokens. True: a longer head comes from elsewhere, and the request waits for it. It makes no call of the engine.
using AttachListener = std::function<bool(const Sequence& sequence, int64_t length)>;

class Scheduler {
public:
    Scheduler(const SchedulerConfig& config, const SchedulerParts& parts, NumericsIds numerics_ids);

    void add(Sequence& sequence, int64_t next_step);  // to the waiting, before that step is planned
    // A sequence whose mask the plan lacks is marked (Sequence::is_late).
    void schedule(int64_t step, StepPlan& plan);
    // Puts the masks of the last schedule() into its plan. REQUIRES: all of them have come.
    void plan_late_masks(StepPlan& plan) const;
    // The sequence has decoded without plans, up to this step: the executor knows all but its last token.
    void has_decoded(Sequence& sequence, int64_t last_step) const;
    // A finished sequence computes nothing more, and keeps its slot until it is removed.
    void retire(Sequence& sequence);
    void on_attach(AttachListener listener) { attach_listener_ = std::move(listener); }
    // The request of the last schedule() that its listener lets wait, once.
    [[nodiscard]] std::optional<RequestId> take_awaiting() { return std::exchange(newly_awaiting_, std::nullopt); }
    // Whether the waiting request waits for a head (D7).
    void set_awaiting(Sequence& sequence, bool awaits);
    // Nothing runs, and the next request in order waits for a head.
    [[nodiscard]] bool waits_for_head() const;
    // Whether memory can hold a head that the waiting request then attaches to, in addition to what runs.
    [[nodiscard]] bool has_room_for_head(const Sequence& sequence) const;
    // The executor has forgotten every slot: none of them needs an end. REQUIRES: no sequence has one.
    void forget_slots();
    // Takes the sequence out of every list and ends its slot; its memory is the caller's to release before.
    void remove(Sequence& sequence);

    [[nodiscard]] const std::vector<Scheduled>& scheduled() const { return scheduled_; }
    [[nodiscard]] const std::vector<Sequence*>& running() const { return running_; }
    [[nodiscard]] const std::map<RequestId, Sequence*>& waiting() const { return waiting_; }
    // Whether all that runs has nothing to do but to sample, and waits for its mask.
    [[nodiscard]] bool waits_for_masks() const;
    [[nodiscard]] bool owes_ends() const { return !ended_slots_.empty(); }  // the next plan has them
    [[nodiscard]] bool idle() const { return running_.empty() && waiting_.empty() && ended_slots_.empty(); }
    void end_draft_path(Sequence& sequence);  // if it has one
    void verify() const;                      // D2 from scratch
    // Whether the sequence is in the phase in which its draft path and its windows alternate.
    [[nodiscard]] bool verifies(const Sequence& sequence) const;
    [[nodiscard]] const NumericsIds& numerics_ids() const { return numerics_ids_; }
    [[nodiscard]] bool is_deterministic(std::string_view numerics_id) const {
        return numerics_id == numerics_ids_[static_cast<size_t>(Arithmetic::kDeterministic)];
    }

private:
    void schedule_sequence(Sequence& sequence, int32_t& budget, StepPlan& plan);
    [[nodiscard]] int32_t most_for(const Sequence& sequence, int32_t budget) const;
    [[nodiscard]] int32_t allocate_blocks_for(Sequence& sequence, int32_t wanted);
    [[nodiscard]] int32_t allocate_blocks_for_drafts(Sequence& sequence, int32_t budget);
    [[nodiscard]] Sequence* youngest_to_preempt() const;
    // draft_paths.cc
    void schedule_verification(Sequence& sequence, int32_t& budget, StepPlan& plan);
    [[nodiscard]] bool draft(Sequence& sequence, int32_t& budget, StepPlan& plan);
    [[nodiscard]] bool start_draft_path(Sequence& sequence);
    void plan_draft_start(Sequence& sequence, StepPlan& plan);
    void plan_draft(Sequence& sequence, int32_t num_new_tokens, StepPlan& plan);
    [[nodiscard]] bool end_youngest_draft_path();
    // admission.cc
    struct Candidate {
        Sequence* sequence = nullptr;
        LookupResult found;  // now
    };
    [[nodiscard]] Candidate next_to_admit();
    enum class Admission : uint8_t { kAdmitted, kNoRoom, kAwaitsHead };
    [[nodiscard]] Admission admit(Candidate next, int32_t budget);
    [[nodiscard]] bool awaits_head(Sequence& sequence, LookupResult& found);
    void attach(Sequence& sequence, LookupResult& found, SequenceMemory memory);
    [[nodiscard]] const std::string& numerics_id_of(const Sequence& sequence) const;
    [[nodiscard]] LookupQuery query_of(const Sequence& sequence) const;
    [[nodiscard]] LookupResult look_up(const Sequence& sequence) const;
    void wait(Sequence& sequence);
    void expect(Sequence& sequence, const LookupResult& found);
    void leave_waiting(Sequence& sequence);
    [[nodiscard]] int32_t blocks_to_activate(const Sequence& sequence, const LookupResult& found) const;
    // Beyond what one request needs.
    struct Extra {
        int32_t num_blocks = 0;
        int32_t num_rows = 0;
    };
    [[nodiscard]] bool reachable(const Sequence& sequence, const LookupResult& found, const Extra& extra) const;
    [[nodiscard]] bool leaves_memory_to_heads(const Sequence& sequence, const LookupResult& found) const;
    void note_computed_again(const Sequence& sequence, const LookupResult& found);
    [[nodiscard]] bool make_room_for(const Sequence& sequence, LookupResult& found, int32_t budget);
    void account_attach(Sequence& sequence, const LookupResult& found, int64_t branch);
    void verify_order() const;
    // scheduler.cc
    void preempt(Sequence& sequence);
    void plan_sequence(Sequence& sequence, int32_t num_new_tokens, StepPlan& plan);
    static void plan_mask(const Sequence& sequence, ScheduledSequence& scheduled, StepPlan& plan);
    void plan_state_catch_up(Sequence& sequence, StepPlan& plan);
    ScheduledSequence& begin_plan(Sequence& sequence, StepPlan& plan);
    void plan_start(Sequence& sequence, StepPlan& plan);
    void plan_slot(const Sequence& sequence, SlotUse& use, StepPlan& plan);
    void order_by_admission(StepPlan& plan);
    Slice append_blocks(SlotUse& use, int32_t last, StepPlan& plan) const;
    [[nodiscard]] bool defers_state_write(const Sequence& sequence, int64_t known_end) const;
    Slice plan_snapshots(Sequence& sequence, int32_t num_new_tokens, StepPlan& plan);
    void end_slot(Sequence& sequence);
    SequenceSlot take_slot();
    void event(EventKind kind, const Sequence& sequence, int64_t value, HeadId head = kNoHead);

    SchedulerConfig config_;
    Cache& cache_;
    Publication& publication_;
    TokenStore& store_;
    EngineStats& stats_;
    Recorder& recorder_;
    NumericsIds numerics_ids_;

    std::map<RequestId, Sequence*> waiting_;                  // in order of arrival
    std::set<std::pair<int64_t, RequestId>> by_tokens_left_;  // the same with kFewestTokens; else empty
    std::vector<Sequence*> running_;
    std::vector<Scheduled> scheduled_;
    std::vector<SequenceSlot> ended_slots_;  // the next plan's finished_slots
    std::vector<SequenceSlot> free_slots_;
    int32_t num_slots_ = 0;
    RunningShare running_share_;
    AttachListener attach_listener_;           // none: memory is all there is
    std::optional<RequestId> newly_awaiting_;  // in the last schedule()
    int32_t deferred_blocks_ = 0;              // to sequences of this step that got less than they asked for
    bool allocation_failed_ = false;           // a sequence was preempted, deferred or not admitted in this step
    bool allocation_failed_before_ = false;    // in the step before
    int32_t verify_budget_ = 0;                // tokens of this step that may yet verify
    int32_t score_budget_ = 0;                 // positions of this step that may yet be scored
    int64_t num_admissions_ = 0;               // of slots
    int64_t num_admitted_ = 0;                 // sequences, each as often as it came in
    int64_t step_ = 0;
};

}  // namespace verbatim
