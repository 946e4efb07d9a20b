// What an executor drew becomes a request's tokens, and those become its stream, up to where the turn ends.
#include <algorithm>

#include "engine/base/check.h"
#include "engine/engine.h"

namespace verbatim {

// One by one, as if each had come in a separate step: what comes behind the turn's end was never drawn.
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
    const auto num_accepted = static_cast<int32_t>(tokens.size()) - (drawn.fault_layer < 0 ? 1 : 0);
    drafting_.record_window(sequence, planned.num_drafts(), num_accepted);
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
    if (reason) commits_.finish(sequence, *reason, plan_.step);
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
        events_.emplace_back(TokenEvent{sequence.id, sequence.output[sequence.num_emitted]});
    }
}

}  // namespace verbatim
