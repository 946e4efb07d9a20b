// What turns share and what their windows gave, from the plans of the steps.
#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "server/engine_host.h"

namespace verbatim::server {

void EngineHost::note_details(const StepPlan& plan) {
    for (auto& [request, live] : live_) {
        if (!live.details) continue;
        const Sequence* sequence = engine_.find(request);
        if (sequence == nullptr || sequence->planned_step != plan.step) continue;
        const auto scheduled = std::ranges::find(plan.sequences, sequence->slot, &ScheduledSequence::slot);
        if (scheduled == plan.sequences.end()) continue;
        const auto start = std::ranges::find(plan.new_sequences, request, &SequenceStart::request);
        if (start != plan.new_sequences.end()) note_start(live, plan, *start, *scheduled);
        close_window(live);
        live.num_step_tokens = 0;
        if (scheduled->num_drafts() > 0) live.window = VerifiedWindow{.num_drafts = scheduled->num_drafts()};
    }
}

// It attaches: full blocks by reference, a copy of the tail, the row of the head as the source of its first step.
void EngineHost::note_start(Live& live, const StepPlan& plan, const SequenceStart& start,
                            const ScheduledSequence& first) const {
    TurnDetails& details = *live.details;
    details.num_attached_tokens = start.num_computed_tokens;
    details.num_shared_blocks = 0;
    for (const BlockRun& run : plan.blocks_of(start)) details.num_shared_blocks += run.count;
    details.num_copied_tokens = 0;
    const std::span<const BlockRun> own = plan.new_blocks(first);
    for (const BlockCopy& copy : plan.copies) {
        if (!own.empty() && own.front().first == copy.dst) details.num_copied_tokens = copy.num_slots;
    }
    details.block_size = engine_.cache().kv().block_size();
    details.read_row = first.state_src;
    details.own_row = first.state_dst;
    live.has_new_details = true;
}

// All of its step's tokens are delivered.
void EngineHost::close_window(Live& live) {
    if (!live.window) return;
    CHECK(live.details && live.window->num_accepted <= live.window->num_drafts, "{} of {} drafts accepted",
          live.window->num_accepted, live.window->num_drafts);
    live.details->windows.push_back(*std::exchange(live.window, std::nullopt));
    live.has_new_details = true;
}

// Those that the client does not have yet; null: none.
TurnDetailsPtr EngineHost::take_details(Live& live) {
    if (!live.details || !std::exchange(live.has_new_details, false)) return nullptr;
    auto taken = std::make_shared<const TurnDetails>(*live.details);
    live.details->windows.clear();
    return taken;
}

}  // namespace verbatim::server
