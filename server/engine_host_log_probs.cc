// The log probabilities of a step's tokens, from the logits that it shows between its result and its application.
#include <algorithm>
#include <cmath>

#include "engine/base/check.h"
#include "server/engine_host.h"

namespace verbatim::server {

void EngineHost::keep_log_probs(const StepPlan& plan) {
    if (!executor_.logits) return;
    for (auto& [request, live] : live_) {
        if (!live.num_log_probs && !live.num_prompt_log_probs) continue;
        const Sequence* sequence = engine_.find(request);
        if (sequence == nullptr || sequence->planned_step != plan.step) continue;
        if (live.num_log_probs) keep_drawn(live, *sequence);
        if (!live.num_prompt_log_probs) continue;
        const auto scored = std::ranges::find(plan.sequences, sequence->slot, &ScheduledSequence::slot);
        if (scored != plan.sequences.end()) keep_scored(live, *sequence, *scored);
    }
}

void EngineHost::keep_drawn(Live& live, const Sequence& sequence) {
    const auto drawn = std::ranges::find(result_.drawn, sequence.slot, &SampledTokens::slot);
    if (drawn == result_.drawn.end()) return;
    CHECK(live.num_log_probs.has_value());
    int32_t row = 0;
    for (const TokenId token : result_.tokens_of(*drawn)) {
        const std::span<const float> logits = executor_.logits(sequence.slot, row++);
        live.log_probs.push_back(log_probs(logits, token, *live.num_log_probs));
    }
}

// A row says how likely the token of the position behind it is; of the last position's row there is none.
void EngineHost::keep_scored(Live& live, const Sequence& sequence, const ScheduledSequence& scored) {
    const int64_t first_sampled = scored.end() - scored.num_sampled_positions;
    CHECK_GE(first_sampled, scored.num_scored_positions);
    for (int32_t row = -scored.num_scored_positions; row < 0; ++row) {
        const auto predicted = static_cast<size_t>(first_sampled + row + 1);
        if (predicted >= live.prompt_log_probs.size()) continue;
        const std::span<const float> logits = executor_.logits(sequence.slot, row);
        const bool is_finite = std::ranges::all_of(logits, [](float l) { return std::isfinite(l); });
        live.is_non_finite |= !is_finite;
        if (!is_finite) continue;
        LogProbs& kept = live.prompt_log_probs[predicted];
        kept = log_probs(logits, kept.drawn.token, *live.num_prompt_log_probs);
    }
}

void EngineHost::begin_scoring(Live& live, const HostRequest& request) const {
    live.num_prompt_log_probs = request.num_prompt_log_probs;
    if (!request.num_prompt_log_probs) return;
    for (const TokenId token : request.prompt) live.prompt_log_probs.push_back({.drawn = {token, 0}});
    CHECK_EQ(static_cast<int64_t>(live.prompt_log_probs.size()), live.num_prompt_tokens);
}

}  // namespace verbatim::server
