// What an executor drew becomes a request's tokens, and those become its stream, up to where the turn ends.
#include <algorithm>

#include "engine/base/check.h"
#include "engine/engine.h"

namespace verbatim {

// One by one, as if each had come in a step of its own: what comes behind the turn's end was never drawn.
void Engine::take_tokens(Sequence& sequence, const ScheduledSequence& planned, const StepResult& result,
                         const SampledTokens& drawn) {
    const std::span<const TokenId> tokens = result.tokens_of(drawn);
    CHECK_EQ(planned.num_computed_tokens, sequence.num_computed_tokens);
    CHECK_LE(tokens.size(), static_cast<size_t>(planned.num_sampled_positions));
    account(sequence, planned.known_end() - planned.num_computed_tokens);
    const int64_t num_drafts = planned.num_drafts();
    stats_.windows += num_drafts > 0 ? 1 : 0;
    stats_.drafted_tokens += num_drafts;
    stats_.rolled_back_tokens += num_drafts;
    if (num_drafts > 0 && paced_windows_) {
        const auto num_accepted = static_cast<int32_t>(tokens.size()) - (drawn.fault_layer < 0 ? 1 : 0);
        sequence.pacing.record(planned.num_drafts(), num_accepted, max_window_ - 1);
    }
    const auto accept_draft = [&] {
        --stats_.rolled_back_tokens;
        ++stats_.accepted_tokens;
        account(sequence, 1);
    };
    for (size_t i = 0; i < tokens.size(); ++i) {
        if (i > 0) accept_draft();
        if (!take_token(sequence, tokens[i])) return;
    }
    if (drawn.fault_layer < 0) return;
    if (!tokens.empty()) accept_draft();
    end(sequence, {.reason = FinishReason::kNonFinite, .fault_layer = drawn.fault_layer});
}

// On a draft path: the next draft, if anything was drawn. Behind a token that would end the turn, and behind a fault,
// there is nothing to draft.
void Engine::take_draft(Sequence& sequence, const ScheduledSequence& planned, const StepResult& result,
                        const SampledTokens* drawn) {
    CHECK(sequence.draft_path && sequence.draft_path->num_computed_tokens == planned.num_computed_tokens,
          "request {} has no draft path at {}", index(sequence.id), planned.num_computed_tokens);
    sequence.draft_path->num_computed_tokens = planned.end();
    stats_.draft_path_tokens += planned.num_new_tokens;
    if (drawn == nullptr) return;
    if (drawn->fault_layer >= 0) {
        scheduler_.end_draft_path(sequence);
        sequence.drafts_end = true;
        return;
    }
    const TokenId token = result.tokens_of(*drawn).front();
    CHECK(token >= 0 && token < store_.vocab_size(), "the executor drew token {} of {}", token, store_.vocab_size());
    sequence.drafts.push_back(token);
    sequence.drafts_end = !sequence.request.ignore_stop && std::ranges::count(sequence.request.stop_tokens, token) > 0;
}

// False when the turn is over with it.
bool Engine::take_token(Sequence& sequence, TokenId token) {
    CHECK(static_cast<int64_t>(sequence.output.size()) < sequence.max_tokens && !sequence.ending,
          "request {} is over and is told token {}", index(sequence.id), token);
    if (!sequence.request.forced_output.empty()) {
        token = sequence.request.forced_output.at(static_cast<int64_t>(sequence.output.size()));
    }
    CHECK(token >= 0 && token < store_.vocab_size(), "the executor drew token {} of {}", token, store_.vocab_size());
    const std::vector<TokenId>& known = sequence.request.known_output;
    if (sequence.output.size() < known.size() && known[sequence.output.size()] != token) {
        end(sequence, {.reason = FinishReason::kAnswerChanged});
        return false;
    }
    ++stats_.generated_tokens;
    CHECK(!sequence.has_grammar() || !sequence.masks.empty(),
          "request {} takes token {}, which was sampled without a mask", index(sequence.id), token);
    if (sequence.has_grammar()) sequence.masks.pop_front();
    sequence.output.push_back(token);
    recorder_.on_token(sequence.id, token);
    if (!sequence.request.ignore_stop) sequence.stops.take(token);
    const std::optional<FinishReason> reason = finished(sequence);
    emit_tokens(sequence, reason);
    if (reason) finish(sequence, *reason);
    return !reason;
}

std::optional<FinishReason> Engine::finished(const Sequence& sequence) const {
    const bool full = static_cast<int64_t>(sequence.output.size()) == sequence.max_tokens;
    if (!sequence.request.ignore_stop && sequence.request.forced_output.empty()) {
        if (std::ranges::count(sequence.request.stop_tokens, sequence.output.back()) > 0)
            return FinishReason::kStopToken;
        if (sequence.stops.num_matched() > 0) return FinishReason::kStopString;
    }
    return full ? std::optional(FinishReason::kLength) : std::nullopt;
}

// A stop string is no text, and what may yet become one is held back.
void Engine::emit_tokens(Sequence& sequence, std::optional<FinishReason> reason) {
    size_t until = sequence.output.size();
    if (reason == FinishReason::kStopString) until -= sequence.stops.num_matched();
    if (!reason) until -= sequence.stops.num_pending();
    CHECK(sequence.num_emitted <= until && until <= sequence.output.size(),
          "request {} was told {} tokens, and {} of {} are text", index(sequence.id), sequence.num_emitted, until,
          sequence.output.size());  // what is held back now was not streamed before
    for (; sequence.num_emitted < until; ++sequence.num_emitted) {
        EngineEvent token;
        token.request = sequence.id;
        token.token = sequence.output[sequence.num_emitted];
        events_.push_back(token);
    }
}

}  // namespace verbatim
