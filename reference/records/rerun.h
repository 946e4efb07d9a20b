// reference/records/rerun.h: repeats a recorded run, step by step as recorded or under another schedule.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "engine/base/result.h"
#include "engine/drafting/drafter.h"
#include "engine/engine.h"
#include "engine/executor.h"
#include "engine/ingestion.h"
#include "reference/records/format.h"

namespace verbatim::records {

[[nodiscard]] std::vector<Call> calls_of(const Record& record);

// Proposes the recorded drafts, so that the plans are the recorded ones.
class RecordedDrafter final : public Drafter {
public:
    explicit RecordedDrafter(const Record& record);
    // The engine that asks for drafts, borrowed. REQUIRES: before the first step.
    void listen_to(const Engine& engine) { engine_ = &engine; }
    [[nodiscard]] bool has_drafts() const { return !drafts_.empty(); }
    void draft(std::span<DraftJob> jobs) override;
    void ended(RequestId) override {}

private:
    const Engine* engine_ = nullptr;
    std::map<std::pair<int64_t, RequestId>, std::vector<TokenId>> drafts_;  // by step and request
};

struct RerunLimits {
    int64_t max_steps = -1;                   // at most; -1: to the end
    std::function<void(int64_t)> after_step;  // with the number of calls made
    // Replaces an executor that failed, where the record has a fresh one; used by rerun_as_recorded alone.
    std::function<Result<Executor*>()> fresh_executor;
    HeadMaker make_head;  // none: a record with imported heads cannot be repeated
};

// Step by step as recorded: each call before the same step, with failed steps and fresh executors. Errors: the
// executor's; a request differs from the recorded one, or a step that failed does not.
[[nodiscard]] Status rerun_as_recorded(const Record& record, Engine& engine, Executor& executor,
                                       const RerunLimits& limits = {});

// Under another schedule (other pools, other budgets), by causes (reference/records/causes.h). A call waits for the
// calls before it that concern the same conversations, for the turns that had ended before it, and for its step unless
// nothing else is left to do. A client leaves when its turn has at least the recorded tokens and positions; such a turn
// never commits, so every conversation keeps its history. No step fails: a turn that a failed executor discarded is
// discarded as if its client left. Refused calls are left out. Errors: the executor's; an accepted request is refused
// now.
[[nodiscard]] Status rerun_by_causes(const Record& record, Engine& engine, Executor& executor,
                                     const RerunLimits& limits = {});

}  // namespace verbatim::records
