// kernels/executors/slot_requests.h: maps the slots in a run's plans to requests.
#pragma once

#include <algorithm>
#include <map>

#include "engine/step_plan.h"

namespace verbatim::executors {

class SlotRequests {
public:
    struct Slot {
        RequestId request{};
        bool is_draft_path = false;  // an older slot of that request is live (engine/scheduler/draft_path.h)
    };

    void follow(const StepPlan& plan) {
        for (const SequenceSlot slot : plan.finished_slots) slots_.erase(slot);
        for (const SequenceStart& start : plan.new_sequences) {
            const bool is_second =
                std::ranges::any_of(slots_, [&](const auto& entry) { return entry.second.request == start.request; });
            slots_[start.slot] = {start.request, is_second};
        }
    }
    void clear() { slots_.clear(); }  // the executor has lost all slots
    [[nodiscard]] const Slot& at(SequenceSlot slot) const { return slots_.at(slot); }

private:
    std::map<SequenceSlot, Slot> slots_;
};

}  // namespace verbatim::executors
