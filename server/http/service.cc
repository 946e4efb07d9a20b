#include "server/http/service.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "server/text/decoder.h"

namespace verbatim::server {
namespace {

// What clients send of themselves, ours first: coding agents name their session so.
constexpr std::array<std::string_view, 6> kConversationHeaders = {
    "X-Session-Id", "X-Claude-Code-Session-Id", "Session-Id", "Session_id", "X-Session-Affinity", "X-Opencode-Session"};

ApiError wrong_value(std::string message, const char* param) {
    return {400, std::move(message), param, "invalid_value"};
}

ApiResult<std::vector<TokenId>> render(const Service& service, const Json& messages, bool add_generation_prompt,
                                       text::WordCache& cache) {
    if (service.chat == nullptr)
        return tl::unexpected(wrong_value("the model has no chat template: use /v1/completions", "messages"));
    auto chat = service.chat->render({messages, add_generation_prompt, nullptr, service.now()}, cache);
    if (!chat) return tl::unexpected(wrong_value(chat.error().message, "messages"));
    return std::move(chat->ids);
}

}  // namespace

ApiResult<std::vector<TokenId>> prompt_of(const Service& service, const GenerateRequest& request,
                                          text::WordCache& cache) {
    const auto wrong = [](std::string message, const char* param) {
        return tl::unexpected(wrong_value(std::move(message), param));
    };
    if (request.prompt_is_ids) {
        for (const TokenId id : request.prompt_ids) {
            if (id >= service.vocab_size)
                return wrong(fmt::format("prompt has token {}, the model has {}", id, service.vocab_size), "prompt");
        }
        return request.prompt_ids;
    }
    if (request.kind == ApiKind::kCompletion) {
        const text::EncodeOptions options{.add_special = true, .parse_special = false};
        auto ids = service.tokenizer->encode(request.prompt, options, cache);
        if (!ids) return wrong(ids.error().message, "prompt");
        if (ids->empty()) return wrong("prompt is empty", "prompt");
        return *std::move(ids);
    }
    auto ids = render(service, request.messages, /*add_generation_prompt=*/true, cache);
    if (ids && ids->empty()) return wrong("the messages make no tokens", "messages");
    return ids;
}

ConversationHint conversation_of(const GenerateRequest& request,
                                 const std::function<std::string(std::string_view)>& header) {
    if (request.conversation_id) return {request.conversation_id, /*is_said=*/true};
    for (const std::string_view name : kConversationHeaders) {
        std::string value = header(name);
        if (is_identifier(value)) return {std::move(value)};
    }
    return {request.prompt_cache_key};
}

ApiResult<std::vector<HostRequest>> host_requests(const Service& service, const GenerateRequest& request,
                                                  const ConversationHint& conversation, const CacheSalt& salt,
                                                  std::vector<TokenId> prompt) {
    if (request.num_log_probs && !service.host->shows_logits())
        return tl::unexpected(ApiError{400, "the executor shows no logits: there are no log probabilities", "logprobs",
                                       "unsupported_value"});
    const int64_t room = service.max_model_len - static_cast<int64_t>(prompt.size());
    if (room < request.max_tokens.value_or(1)) {
        return tl::unexpected(
            ApiError{400,
                     fmt::format("the prompt has {} tokens and the answer may have {}: together the model takes {}",
                                 prompt.size(), request.max_tokens.value_or(1), service.max_model_len),
                     request.kind == ApiKind::kChat ? "messages" : "prompt", "context_length_exceeded"});
    }
    HostRequest host;
    host.conversation_id = conversation.id;
    host.id_is_hint = !conversation.is_said;
    host.salt = salt;
    host.prompt = std::move(prompt);
    host.max_tokens = request.max_tokens.value_or(room);
    host.sampling = request.sampling;
    host.seed = request.seed;
    if (!request.ignore_stop) host.stop_tokens = service.stop_tokens;
    host.use_cache = request.use_cache;
    host.num_log_probs = request.num_log_probs;
    std::vector<HostRequest> all(static_cast<size_t>(request.num_choices), host);
    for (size_t i = 1; i < all.size(); ++i) {
        all[i].conversation_id.reset();
        if (all[i].seed) *all[i].seed += i;
    }
    return all;
}

Json model_json(const Service& service) {
    return {{"id", service.model},
            {"object", "model"},
            {"created", 0},
            {"owned_by", "verbatim"},
            {"max_model_len", service.max_model_len}};
}

Json model_list(const Service& service) {
    return {{"object", "list"}, {"data", Json::array({model_json(service)})}};
}

ApiResult<Json> tokenize(const Service& service, const TokenizeRequest& request, text::WordCache& cache) {
    ApiResult<std::vector<TokenId>> ids;
    if (request.prompt) {
        const text::EncodeOptions options{.add_special = request.add_special_tokens, .parse_special = false};
        auto encoded = service.tokenizer->encode(*request.prompt, options, cache);
        if (!encoded) return tl::unexpected(wrong_value(encoded.error().message, "prompt"));
        ids = *std::move(encoded);
    } else {
        ids = render(service, request.messages, request.add_generation_prompt, cache);
    }
    if (!ids) return tl::unexpected(ids.error());
    return Json{{"count", ids->size()}, {"max_model_len", service.max_model_len}, {"tokens", *ids}};
}

ApiResult<Json> detokenize(const Service& service, const std::vector<TokenId>& tokens) {
    auto text = text::decode(*service.tokenizer, tokens);
    if (!text) return tl::unexpected(wrong_value(text.error().message, "tokens"));
    return Json{{"prompt", *std::move(text)}};
}

}  // namespace verbatim::server
