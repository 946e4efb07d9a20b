// engine/drafting/drafting.h: the drafts of running requests: which of them a drafter is asked for, how many, and what
// came of them.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/drafting/drafter.h"
#include "engine/drafting/pacing.h"
#include "engine/scheduler/scheduler.h"
#include "engine/stats.h"
#include "engine/step_plan.h"

namespace verbatim {

class Drafting {
public:
    // Borrowed for its life.
    Drafting(Scheduler& scheduler, EngineStats& stats, int32_t vocab_size)
        : scheduler_(scheduler), stats_(stats), vocab_size_(vocab_size) {}

    // Null: no drafts. Paced windows have as many drafts as pay by the drafter's terms().
    void use(Drafter* drafter, int32_t max_window, bool paced_windows);
    [[nodiscard]] bool enabled() const { return drafter_ != nullptr && max_window_ > 1; }

    // Sets the drafts of every running request that decodes: as many as could be of use.
    void propose();
    // A step of the request's draft path came back: its next draft, if a token was sampled (`sampled`; else null).
    void take(Sequence& sequence, const ScheduledSequence& planned, const StepResult& result,
              const SampledTokens* sampled);
    // A window of the request was verified; `num_accepted` of its drafts agreed.
    void record_window(Sequence& sequence, int32_t num_drafts, int32_t num_accepted);
    void end(RequestId request);  // it gets no more drafts
    // The step came back.
    void end_step(const StepPlan& plan, const StepResult& result);

private:
    [[nodiscard]] bool may_draft(const Sequence& sequence) const;
    [[nodiscard]] int32_t max_drafts(Sequence& sequence, int64_t least_acceptance) const;
    void collect_jobs(const DraftTerms& terms);

    Scheduler& scheduler_;
    EngineStats& stats_;
    int32_t vocab_size_;
    Drafter* drafter_ = nullptr;
    int32_t max_window_ = 1;  // tokens: the first is no draft
    bool paced_windows_ = false;
    std::vector<DraftJob> jobs_;        // of the step to come
    std::vector<Sequence*> sequences_;  // of jobs_
};

}  // namespace verbatim
