#include "server/http/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "engine/base/check.h"
#include "server/http/translated_chat.h"

namespace verbatim::server {
namespace {

ApiError refused_error(const Refusal& refusal, ApiKind kind) {
    ApiError error = api_error(refusal);
    if (error.code == "context_length_exceeded") error.param = input_field(kind);
    return error;
}

ApiError failed_error(const FailedUpdate& update) {
    switch (update.part) {
        case FailedUpdate::Part::kLedger: return ledger_problem(update.problem);
        case FailedUpdate::Part::kGrammar:
            return {400, "the answer cannot go on in the form that is wanted: " + update.problem, "", "grammar_failed"};
        case FailedUpdate::Part::kExecutor: break;
    }
    return {503, "the executor failed: " + update.problem, "", "failed"};
}

// Of a turn that did not end as a turn should.
ApiError broken_error(FinishReason reason) {
    if (reason == FinishReason::kExecutorFailed) return {503, "the executor failed: try again", "", name(reason)};
    if (reason == FinishReason::kAnswerChanged) {
        return {503,
                "the executor failed in this answer, and the one in its place drew other tokens than the answer "
                "already has: nothing is committed, ask again",
                "", name(reason)};
    }
    return {500, fmt::format("the turn ended: {}", name(reason)), "", name(reason)};
}

// Did the turn end as a turn should?
bool is_whole(FinishReason reason) {
    using Reason = FinishReason;
    return reason == Reason::kLength || reason == Reason::kStopToken || reason == Reason::kStopString;
}

// Windows are those since the last details; the rest is as of now.
void add_details(ChoicePart& part, const TurnDetails& more) {
    if (!part.details) part.details.emplace();
    std::vector<VerifiedWindow> windows = std::move(part.details->windows);
    windows.insert(windows.end(), more.windows.begin(), more.windows.end());
    part.details = more;
    part.details->windows = std::move(windows);
}

void append_event(std::string& events, const std::string& json) { events.append("data: ").append(json).append("\n\n"); }
void append_event(std::string& events, const Json& json) { append_event(events, written_answer(json)); }

}  // namespace

std::string event_of(const Json& json) {
    std::string event;
    append_event(event, json);
    return event;
}

Generation::Generation(const text::Tokenizer& tokenizer, GenerateRequest request, AnswerFrame frame,
                       std::vector<AnsweredPrompt> prompts, const text::AnswerForm& form)
    : request_(std::move(request)), writer_(std::move(frame), tokenizer), prompts_(std::move(prompts)) {
    const size_t num_choices = prompts_.size() * request_.num_sampled_choices();
    CHECK_GT(num_choices, size_t{0});
    for (size_t index = 0; index < num_choices; ++index) {
        Choice& choice = choices_.emplace_back(tokenizer, request_, form);
        choice.part.index = static_cast<int64_t>(index);
        choice.part.num_top_log_probs = request_.num_log_probs;
        choice.part.num_prompt_top_log_probs = request_.num_prompt_log_probs;
        choice.has_begun = !request_.echo && !request_.is_scored();
    }
    items_ = item_answer_of(request_, writer_.frame(), prompts_.front().num_tokens);
}

const AnsweredPrompt& Generation::prompt_of(const Choice& choice) const {
    return prompts_[static_cast<size_t>(choice.part.index) / request_.num_sampled_choices()];
}

void Generation::take(size_t index, HostUpdate update) {
    CHECK_LT(index, choices_.size());
    CHECK(!choices_[index].ended, "choice {} has ended", index);
    std::visit([&](auto& of_kind) { take(choices_[index], std::move(of_kind)); }, update);
}

void Generation::take(Choice& choice, AcceptedUpdate update) {
    CHECK_LT(num_accepted_, choices_.size());
    ++num_accepted_;
    if (choice.part.index == 0) in_conversation_ = update.in_conversation;
    if (!update.recorded) return;
    writer_.rename(update.recorded->answer_id, update.recorded->created);
    prompts_.front().num_tokens = update.recorded->num_prompt_tokens;
}

void Generation::take_extras(Choice& choice, AnswerExtras extras) {
    const auto index = static_cast<size_t>(choice.part.index);
    const size_t num_sampled = request_.num_sampled_choices();
    if (!choice.has_begun && index % num_sampled == 0)
        begin_prompt(index / num_sampled, std::move(extras.prompt_log_probs));
    if (extras.details) add_details(choice.part, *extras.details);
}

// What the first choice of a prompt brings is at the beginning of all of them. None has sent anything before.
void Generation::begin_prompt(size_t prompt, std::vector<LogProbs> log_probs) {
    const size_t num_sampled = request_.num_sampled_choices();
    CHECK_LT(prompt, prompts_.size());
    for (size_t i = prompt * num_sampled; i < (prompt + 1) * num_sampled; ++i) {
        Choice& choice = choices_[i];
        CHECK(choice.text_offsets.is_at_start());  // it has sent nothing
        choice.has_begun = true;
        if (request_.num_prompt_log_probs) choice.part.prompt_log_probs = log_probs;
        if (!request_.echo) continue;
        choice.part.text.insert(0, prompts_[prompt].echo);
        if (!request_.num_log_probs) continue;
        auto& of_part = choice.part.log_probs;
        of_part.insert(of_part.begin(), log_probs.begin(), log_probs.end());
    }
}

void Generation::take(Choice& choice, TokenUpdate update) {
    take_extras(choice, std::move(update.extras));
    if (choice.reader.ended()) return;
    ++choice.num_tokens;
    text::AnswerParts parts;
    choice.reader.add(update.token, parts);
    take_parts(choice, parts);
    if (items_) items_->count_token();
    if (!update.log_probs) return;
    choice.log_prob += update.log_probs->drawn.log_prob;
    if (request_.num_log_probs) choice.part.log_probs.push_back(*std::move(update.log_probs));
}

// Of arguments that are sent in parts each part is a separate entry.
void Generation::take_parts(Choice& choice, text::AnswerParts& parts) {
    if (items_) return items_->take(parts);
    using PartKind = text::AnswerPart::Kind;
    std::vector<CallPart>& calls = choice.part.calls;
    for (text::AnswerPart& part : parts) {
        switch (part.kind) {
            case PartKind::kText: choice.part.text += part.text; break;
            case PartKind::kReasoning: choice.part.reasoning += part.text; break;
            case PartKind::kCall:
                calls.push_back({.index = choice.num_calls,
                                 .id = writer_.call_id(choice.part.index, choice.num_calls),
                                 .name = std::move(part.text)});
                ++choice.num_calls;
                break;
            case PartKind::kArguments:
                CHECK_GT(choice.num_calls, 0);
                if (calls.empty()) calls.push_back({.index = choice.num_calls - 1});
                calls.back().arguments += part.text;
                break;
        }
    }
}

void Generation::take(Choice& choice, Refusal refusal) { fail(choice, refused_error(refusal, request_.kind)); }

void Generation::take(Choice& choice, FailedUpdate update) { fail(choice, failed_error(update)); }

void Generation::fail(Choice& choice, ApiError error) {
    end(choice);
    if (!error_) error_ = with_origins(std::move(error), request_.origins);
}

void Generation::end(Choice& choice) {
    CHECK(!choice.ended && num_ended_ < choices_.size(), "choice {} ends, {} of {} have", choice.part.index, num_ended_,
          choices_.size());
    choice.ended = true;
    ++num_ended_;
}

void Generation::take(Choice& choice, FinishedUpdate update) {
    take_extras(choice, std::move(update.extras));
    if (!is_whole(update.end.reason)) return fail(choice, broken_error(update.end.reason));
    end(choice);
    const bool stopped = choice.reader.ended();
    text::AnswerParts rest;
    choice.reader.finish(rest);
    take_parts(choice, rest);
    choice.part.calls_tools = choice.num_calls > 0;
    choice.part.finish = stopped ? FinishReason::kStopString : update.end.reason;
    choice.num_reused = update.end.num_reused_tokens;
    if (in_conversation_ && choice.part.index == 0) choice.part.head = update.head;
    if (items_) items_->end({*choice.part.finish, choice.reader.stop_text(), usage()});
}

bool Generation::is_long() const {
    constexpr int64_t kManyTokens = 1024;
    return request_.num_log_probs || request_.num_prompt_log_probs || usage().completion_tokens > kManyTokens;
}

Usage Generation::usage() const {
    Usage usage;
    for (const AnsweredPrompt& prompt : prompts_) usage.prompt_tokens += prompt.num_tokens;
    for (const Choice& choice : choices_) usage.completion_tokens += choice.num_tokens;
    for (size_t i = 0; i < choices_.size(); i += request_.num_sampled_choices())
        usage.cached_tokens += choices_[i].num_reused;
    return usage;
}

// As in vLLM, where usage is wanted at all.
std::optional<Usage> Generation::usage_so_far(const Choice& choice) const {
    if (!request_.include_usage || !request_.continuous_usage) return std::nullopt;
    return Usage{.prompt_tokens = prompt_of(choice).num_tokens, .completion_tokens = choice.num_tokens};
}

// A part comes as up to three chunks: its text, its calls, and an empty one with the reason.
std::string Generation::events_of(Choice& choice) {
    std::string events;
    if (!choice.has_begun) return events;
    ChoicePart& part = choice.part;
    const auto finish = std::exchange(part.finish, {});
    const auto head = std::exchange(part.head, {});
    const std::vector<CallPart> calls = std::exchange(part.calls, {});
    if (!part.text.empty() || !part.reasoning.empty() || !part.log_probs.empty()) {
        part.text_offsets = choice.text_offsets;
        part.usage = usage_so_far(choice);
        if (request_.kind == ApiKind::kCompletion) {
            for (const LogProbs& one : part.log_probs) choice.text_offsets.take(one.drawn.token);
        }
        append_event(events, writer_.written_chunk(part));
        part.text.clear();
        part.reasoning.clear();
        part.log_probs.clear();
        part.details.reset();
    }
    for (const CallPart& call : calls) {
        const ChoicePart alone{.index = part.index, .calls = {call}, .usage = usage_so_far(choice)};
        append_event(events, writer_.written_chunk(alone));
    }
    if (!finish) return events;
    const ChoicePart last{.index = part.index,
                          .calls_tools = part.calls_tools,
                          .details = std::exchange(part.details, {}),
                          .finish = finish,
                          .head = head,
                          .usage = usage_so_far(choice)};
    append_event(events, writer_.chunk(last));
    return events;
}

std::string Generation::take_events() {
    CHECK(is_decided(), "{} of {} choices are accepted", num_accepted_, choices_.size());
    std::string events;
    if (end_delivered_) return events;
    if (items_) return take_item_events();
    if (!std::exchange(roles_sent_, true) && request_.kind == ApiKind::kChat) {
        for (const Choice& choice : choices_) {
            ChoicePart role{.index = choice.part.index};
            if ((role.usage = usage_so_far(choice))) role.usage->completion_tokens = 0;
            append_event(events, writer_.role_chunk(role));
        }
    }
    for (Choice& choice : choices_) events += events_of(choice);
    if (!is_over()) return events;
    end_delivered_ = true;
    if (error_) {
        append_event(events, error_->envelope());
        return events;
    }
    if (request_.include_usage) append_event(events, writer_.usage_chunk(usage()));
    return events + "data: [DONE]\n\n";
}

std::string Generation::take_item_events() {
    std::string events = items_->take_events();
    end_delivered_ = is_over();
    if (error_) events += items_->failed_event(*error_);
    return events;
}

std::string Generation::failed_event(const ApiError& error) {
    return items_ ? items_->failed_event(error) : event_of(error.envelope());
}

std::string Generation::waiting_event() const { return items_ ? items_->waiting_event() : kWaitingComment; }

Json Generation::whole() const { return items_ ? items_->whole() : writer_.whole(chosen(), usage()); }

// Of each prompt's choices those with the greatest log probability per token, the first one among equals.
std::vector<ChoicePart> Generation::chosen() const {
    const size_t num_sampled = request_.num_sampled_choices();
    const auto per_token = [](const Choice* choice) {
        return choice->log_prob / static_cast<double>(std::max<int64_t>(choice->num_tokens, 1));
    };
    std::vector<ChoicePart> parts;
    for (size_t first = 0; first < choices_.size(); first += num_sampled) {
        std::vector<const Choice*> of_prompt;
        for (size_t i = 0; i < num_sampled; ++i) of_prompt.push_back(&choices_[first + i]);
        const auto wanted = static_cast<size_t>(request_.num_choices);
        if (num_sampled > wanted) std::ranges::stable_sort(of_prompt, std::ranges::greater(), per_token);
        for (size_t i = 0; i < wanted; ++i) {
            parts.push_back(of_prompt[i]->part);
            parts.back().index = static_cast<int64_t>(parts.size() - 1);
        }
    }
    return parts;
}

}  // namespace verbatim::server
