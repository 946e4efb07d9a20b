#include "kernels/executors/mismatching_executor.h"

#include "engine/base/check.h"
#include "engine/base/prng.h"

namespace verbatim::executors {

constexpr uint64_t kMillion = 1'000'000;

Status MismatchingExecutor::execute(const StepPlan& plan, StepResult& result) {
    slots_.follow(plan);
    if (Status executed = inner().execute(plan, result); !executed) {
        slots_.clear();
        return executed;
    }
    auto drawn = result.drawn.begin();
    for (const ScheduledSequence& sequence : plan.sequences) {
        if (sequence.num_sampled_positions == 0) continue;
        CHECK(drawn != result.drawn.end() && drawn->slot == sequence.slot,
              "slot {} samples, and the result has no tokens of it", index(sequence.slot));
        const SlotRequests::Slot& slot = slots_.at(sequence.slot);
        const Slice tokens = (drawn++)->tokens;
        if (!slot.is_draft_path || tokens.count != 1 || !errs(slot.request, sequence.end())) continue;
        TokenId& token = result.tokens[tokens.begin];
        token = (token + 1) % vocab_size_;
    }
    return {};
}

bool MismatchingExecutor::errs(RequestId request, int64_t position) const {
    Prng prng(seed_ ^ (static_cast<uint64_t>(index(request)) << 32) ^ static_cast<uint64_t>(position));
    return prng.below(kMillion) < static_cast<uint64_t>(ppm_);
}

}  // namespace verbatim::executors
