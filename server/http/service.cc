#include "server/http/service.h"

#include <fmt/format.h>

#include <utility>

namespace verbatim::server {

ApiResult<std::vector<TokenId>> prompt_of(const Service& service, const GenerateRequest& request,
                                          text::WordCache& cache) {
    const auto wrong = [](std::string message, const char* param) {
        return tl::unexpected(ApiError{400, std::move(message), param, "invalid_value"});
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
    if (service.chat == nullptr) return wrong("the model has no chat template: use /v1/completions", "messages");
    auto chat = service.chat->render({request.messages, true, nullptr, service.now()}, cache);
    if (!chat) return wrong(chat.error().message, "messages");
    if (chat->ids.empty()) return wrong("the messages make no tokens", "messages");
    return std::move(chat->ids);
}

ApiResult<HostRequest> host_request(const Service& service, const GenerateRequest& request,
                                    std::vector<TokenId> prompt) {
    const int64_t room = service.max_model_len - static_cast<int64_t>(prompt.size());
    if (room < request.max_tokens.value_or(1)) {
        return tl::unexpected(
            ApiError{400,
                     fmt::format("the prompt has {} tokens and the answer may have {}: together the model takes {}",
                                 prompt.size(), request.max_tokens.value_or(1), service.max_model_len),
                     request.kind == ApiKind::kChat ? "messages" : "prompt", "context_length_exceeded"});
    }
    HostRequest host;
    host.conversation_id = request.conversation_id;
    host.salt.value = request.cache_salt;
    host.prompt = std::move(prompt);
    host.max_tokens = request.max_tokens.value_or(room);
    host.sampling = request.sampling;
    host.seed = request.seed;
    if (!request.ignore_stop) host.stop_tokens = service.stop_tokens;
    host.use_cache = request.use_cache;
    return host;
}

Json model_list(const Service& service) {
    Json model = {{"id", service.model},
                  {"object", "model"},
                  {"created", 0},
                  {"owned_by", "verbatim"},
                  {"max_model_len", service.max_model_len}};
    return {{"object", "list"}, {"data", Json::array({model})}};
}

}  // namespace verbatim::server
