#include "engine/request/request.h"

#include <fmt/format.h>

#include <limits>
#include <string_view>

#include "engine/base/check.h"
#include "engine/fields.h"

namespace verbatim {
namespace {

void check_tokens(std::vector<std::string>& problems, const char* field, const std::vector<TokenId>& tokens,
                  int32_t vocab_size) {
    for (const TokenId token : tokens) {
        if (token < 0 || token >= vocab_size) {
            problems.push_back(fmt::format("{}: token {} is not in [0, {})", field, token, vocab_size));
        }
    }
}

void check_sampling(std::vector<std::string>& problems, const SamplingParams& sampling) {
    const auto finite = [&](const char* field, auto value) {
        constexpr auto kGreatest = std::numeric_limits<decltype(value)>::max();
        if (!(value >= -kGreatest && value <= kGreatest))
            problems.push_back(fmt::format("{}: {} is not finite", field, value));
    };
    finite("temperature", sampling.temperature);
    finite("repetition_penalty", sampling.repetition_penalty);
    finite("presence_penalty", sampling.presence_penalty);
    finite("frequency_penalty", sampling.frequency_penalty);
    if (!(sampling.min_p >= 0 && sampling.min_p <= 1)) {
        problems.push_back(fmt::format("min_p: {} is not in [0, 1]", sampling.min_p));
    }
    if (sampling.min_tokens < 0) problems.push_back(fmt::format("min_tokens: {} is not >= 0", sampling.min_tokens));
    if (!(sampling.temperature >= 0))
        problems.push_back(fmt::format("temperature: {} is not >= 0", sampling.temperature));
    if (sampling.top_k < 0) problems.push_back(fmt::format("top_k: {} is not >= 0", sampling.top_k));
    if (!(sampling.top_p > 0 && sampling.top_p <= 1)) {
        problems.push_back(fmt::format("top_p: {} is not in (0, 1]", sampling.top_p));
    }
    if (!(sampling.repetition_penalty > 0)) {
        problems.push_back(fmt::format("repetition_penalty: {} is not > 0", sampling.repetition_penalty));
    }
}

void check_logit_bias(std::vector<std::string>& problems, const std::vector<LogitBias>& logit_bias,
                      int32_t vocab_size) {
    TokenId previous = -1;
    for (const auto& [token, bias] : logit_bias) {
        if (token <= previous || token >= vocab_size) {
            problems.push_back(
                fmt::format("logit_bias: token {} after token {}, of a vocabulary of {}", token, previous, vocab_size));
        }
        if (!(bias >= -kMaxLogitBias && bias <= kMaxLogitBias)) {
            problems.push_back(fmt::format("logit_bias: {} of token {} is not in [{}, {}]", bias, token, -kMaxLogitBias,
                                           kMaxLogitBias));
        }
        previous = token;
    }
}

// Without stop tokens an answer could not end where its grammar does.
void check_masks(std::vector<std::string>& problems, const ChatRequest& request, int32_t vocab_size) {
    const bool has_grammar = !request.grammar.empty();
    if (has_grammar == request.masks.empty()) {
        problems.push_back(
            fmt::format("masks: {} of them {} a grammar", request.masks.size(), has_grammar ? "with" : "without"));
    }
    for (const TokenMask& mask : request.masks) {
        if (is_valid_mask(mask.runs, vocab_size)) continue;
        problems.push_back(fmt::format("masks: one allows no token, or is none of {} tokens", vocab_size));
        break;
    }
    if (has_grammar && request.ignore_stop) problems.push_back("grammar: not with ignore_stop");
    if (has_grammar && !request.forced_output.empty()) problems.push_back("grammar: not with forced_output");
}

void check_input(std::vector<std::string>& problems, const ChatRequest& request) {
    int64_t num_tokens = 0;
    for (const Message& message : request.messages) num_tokens += message.tokens.size();
    if (request.input == InputKind::kRegenerate && !request.messages.empty()) {
        problems.push_back("messages: must be empty to regenerate");
    }
    if (request.input == InputKind::kHistory && num_tokens == 0) problems.push_back("messages: no tokens");
    if (request.max_tokens && *request.max_tokens < 0) {
        problems.push_back(fmt::format("max_tokens: {} is not >= 0", *request.max_tokens));
    }
    if (request.scored_from && *request.scored_from < 0) {
        problems.push_back(fmt::format("scored_from: {} is not >= 0", *request.scored_from));
    }
    if (request.stop_strings.size() > kMaxStopStrings) {
        problems.push_back(
            fmt::format("stop_strings: {} of them, {} is the most", request.stop_strings.size(), kMaxStopStrings));
    }
    for (const auto& stop : request.stop_strings) {
        if (stop.empty()) problems.push_back("stop_strings: an empty one");
        if (stop.size() > kMaxStopStringTokens) {
            problems.push_back(
                fmt::format("stop_strings: one of {} tokens, {} is the most", stop.size(), kMaxStopStringTokens));
        }
    }
}

}  // namespace

Status validate(const ChatRequest& request, int32_t vocab_size) {
    std::vector<std::string> problems;
    check_input(problems, request);
    check_sampling(problems, request.sampling);
    check_logit_bias(problems, request.sampling.logit_bias, vocab_size);
    check_masks(problems, request, vocab_size);
    check_tokens(problems, "end_tokens", request.sampling.end_tokens, vocab_size);
    check_tokens(problems, "stop_tokens", request.stop_tokens, vocab_size);
    for (const auto& stop : request.stop_strings) check_tokens(problems, "stop_strings", stop, vocab_size);
    if (problems.empty()) return {};
    return error("request for conversation '{}': {}", request.conversation.conversation_id, fmt::join(problems, "; "));
}

Digest content_digest(const ChatRequest& request) {
    Digester digester;
    digester.add(request.input);
    digester.add(static_cast<uint64_t>(request.messages.size()));
    for (const Message& message : request.messages) message.tokens.add_to(digester);
    digester.add(request.max_tokens.value_or(-1));
    SamplingParams sampling = request.sampling;
    sampling.seed = 0;
    add_fields(digester, sampling);
    digester.add_all(std::span(request.stop_tokens));
    digester.add(static_cast<uint64_t>(request.stop_strings.size()));
    for (const auto& stop : request.stop_strings) digester.add_all(std::span(stop));
    digester.add(request.ignore_stop);
    digester.add(request.deterministic);
    request.forced_output.add_to(digester);
    if (!request.grammar.empty()) {
        digester.add(std::string_view("grammar"));
        digester.add(std::string_view(request.grammar));
    }
    return digester.digest();
}

const char* name(FinishReason reason) {
    switch (reason) {
        case FinishReason::kLength: return "length";
        case FinishReason::kStopToken: return "stop_token";
        case FinishReason::kStopString: return "stop_string";
        case FinishReason::kAborted: return "aborted";
        case FinishReason::kNonFinite: return "non_finite";
        case FinishReason::kExecutorFailed: return "executor_failed";
        case FinishReason::kLeaseLost: return "lease_lost";
        case FinishReason::kAnswerChanged: return "answer_changed";
    }
    CHECK(false, "finish reason {}", static_cast<int>(reason));
}

}  // namespace verbatim
