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
};

// Step by step as it was: each call before the step that it came before. Ends early, without an error, where a request
// becomes another one than it was, a step that failed does not, or a fresh executor came: what was recorded and what is
// then differ by themselves. Errors: the executor's.
[[nodiscard]] Status rerun_as_recorded(const Record& record, Engine& engine, Executor& executor,
                                       const RerunLimits& limits = {});

// Under another schedule (other pools, other budgets): a call is made when those before it that are about the same
// conversations are made and the turns that were over before it are over, and no earlier than at its step unless
// nothing else is left to do; a client leaves after as many tokens as it had. Refused calls computed nothing, and are
// left out. Errors: the executor's; a request that was accepted and is refused now.
[[nodiscard]] Status rerun_by_causes(const Record& record, Engine& engine, Executor& executor,
                                     const RerunLimits& limits = {});

}  // namespace verbatim::records
