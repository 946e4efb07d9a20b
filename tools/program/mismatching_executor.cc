#include "tools/program/mismatching_executor.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/prng.h"

namespace verbatim::tools {

constexpr uint64_t kMillion = 1'000'000;

Status MismatchingExecutor::execute(const StepPlan& plan, StepResult& result) {
    follow(plan);
    if (Status executed = inner().execute(plan, result); !executed) {
        slots_.clear();  // the executor has forgotten every slot
        return executed;
    }
    auto drawn = result.drawn.begin();
    for (const ScheduledSequence& sequence : plan.sequences) {
        if (sequence.num_draws == 0) continue;
        CHECK(drawn != result.drawn.end() && drawn->slot == sequence.slot, "slot {} draws and is told nothing",
              index(sequence.slot));
        const Slot& slot = slots_.at(sequence.slot);
        const Slice tokens = (drawn++)->tokens;
        if (!slot.is_draft_path || tokens.count != 1 || !errs(slot.request, sequence.end())) continue;
        TokenId& token = result.tokens[tokens.begin];
        token = (token + 1) % vocab_size_;
    }
    return {};
}

void MismatchingExecutor::follow(const StepPlan& plan) {
    for (const SequenceSlot slot : plan.ends) slots_.erase(slot);
    for (const SequenceStart& start : plan.starts) {
        const bool is_second =
            std::ranges::any_of(slots_, [&](const auto& entry) { return entry.second.request == start.request; });
        slots_[start.slot] = {start.request, is_second};
    }
}

bool MismatchingExecutor::errs(RequestId request, int64_t position) const {
    Prng prng(seed_ ^ (static_cast<uint64_t>(index(request)) << 32) ^ static_cast<uint64_t>(position));
    return prng.below(kMillion) < static_cast<uint64_t>(ppm_);
}

}  // namespace verbatim::tools
