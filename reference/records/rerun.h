// reference/records/rerun.h: makes a recorded run again, step by step as it was or under another schedule.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "engine/base/result.h"
#include "engine/drafting/drafter.h"
#include "engine/engine/engine.h"
#include "engine/executor.h"
#include "reference/records/format.h"

namespace verbatim::records {

[[nodiscard]] std::vector<Call> calls_of(const Record& record);

// Guesses what was guessed when the run was recorded: the same plans come of it.
class RecordedDrafter final : public Drafter {
public:
    explicit RecordedDrafter(const Record& record);
    // Who asks, borrowed. REQUIRES: before the first step.
    void listen_to(const Engine& engine) { engine_ = &engine; }
    [[nodiscard]] bool has_drafts() const { return !drafts_.empty(); }
    void draft(std::span<DraftJob> jobs) override;
    void ended(RequestId) override {}

private:
    const Engine* engine_ = nullptr;
    std::map<std::pair<int64_t, RequestId>, std::vector<TokenId>> drafts_;  // by step and request
};

struct RerunLimits {
    int64_t max_steps = -1;                   // so many and no more; -1: to the end
    std::function<void(int64_t)> after_step;  // with the number of calls made
    // Takes the place of one that failed, where the record says so; rerun_as_recorded alone asks for it.
    std::function<Result<Executor*>()> fresh_executor;
};

// Step by step as it was: each call before the step that it came before, failed steps and fresh executors among them.
// Errors: the executor's; where a request becomes another one than it was, or a step that failed does not.
[[nodiscard]] Status rerun_as_recorded(const Record& record, Engine& engine, Executor& executor,
                                       const RerunLimits& limits = {});

// Under another schedule (other pools, other budgets), by causes (reference/records/causes.h): a call is made when the
// calls before it that are about the same conversations are made and the turns that were over before it are over, and
// no earlier than at its step unless nothing else is left to do. A client leaves when its turn has at least the tokens
// and positions that it had in the record; such a turn never commits, so that every conversation keeps its history. No
// step fails: a turn that an executor took with it is left like one of a client that left. Refused calls are left out.
// Errors: the executor's; a request that was accepted and is refused now.
[[nodiscard]] Status rerun_by_causes(const Record& record, Engine& engine, Executor& executor,
                                     const RerunLimits& limits = {});

}  // namespace verbatim::records
