// reference/requested_plan.h: the plan that an engine should have made from the clients' requests.
//
// A requested plan takes tokens, prompt lengths, sampling parameters, seeds and arithmetic from a RequestBook. It takes
// the scheduler's decisions from the engine's plan: slots, how many positions a step computes, drafts, blocks and state
// rows. A plan is refused when it names a request that does not run, has too few or too many tokens of one, or breaks a
// rule of engine/slot_tables.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/request_book.h"
#include "engine/slot_tables.h"
#include "engine/step_plan.h"

namespace verbatim::reference {

// Where a plan differs from the requests; plain data, unknown values are -1.
struct PlanFault {
    RequestId request{-1};
    int64_t position = -1;  // of a token
    std::string field;      // "starts.sampling.seed"; "refused" for a broken rule
    std::string detail;     // the plan's value and the request's
    double planned = 0;
    double requested = 0;
};

class RequestedPlan {
public:
    // Borrows the book. `rules`: those of the executor that runs the plans.
    RequestedPlan(RequestBook& book, const SlotTablesConfig& rules) : book_(book), rules_(rules) {}

    // Reads the engine's plan. Error: the plan is refused, and the engine's slots are meaningless from here on.
    Status take(const StepPlan& plan);
    // The first fault of the last plan taken. A refused plan has one.
    [[nodiscard]] const std::optional<PlanFault>& fault() const { return fault_; }
    // REQUIRES: take() has not refused.
    [[nodiscard]] const StepPlan& plan() const { return requested_; }
    // Takes the result of the last plan taken, as the engine receives it.
    void executed(const StepPlan& plan, const StepResult& result);

private:
    struct Slot {
        bool live = false;
        bool is_draft_path = false;  // its request runs in another slot
        RequestId request{-1};
        int64_t num_known = 0;  // tokens that its executor has computed or holds, without drafts
    };
    [[nodiscard]] Status take_shape(const StepPlan& plan);
    [[nodiscard]] Status take_start(const StepPlan& plan, SequenceStart& start);
    [[nodiscard]] Status take_sequence(const StepPlan& plan, ScheduledSequence& sequence);
    [[nodiscard]] Status check_scored(const AskedRequest& asked, const ScheduledSequence& sequence);
    void take_mask(const StepPlan& plan, const AskedRequest& asked, bool draws, ScheduledSequence& sequence);
    [[nodiscard]] Status take_appended(const StepPlan& plan, const AskedRequest& asked, ScheduledSequence& sequence);
    void note(PlanFault fault);
    [[nodiscard]] Status refuse(RequestId request, std::string field, std::string detail);
    [[nodiscard]] Slot& slot(SequenceSlot slot);
    [[nodiscard]] RequestId request_of(SequenceSlot slot) const;  // the last one; -1: none

    RequestBook& book_;
    SlotTables rules_;
    std::vector<Slot> slots_;
    StepPlan requested_;
    std::optional<PlanFault> fault_;
    std::optional<int64_t> last_step_;
};

}  // namespace verbatim::reference
