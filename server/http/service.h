// server/http/service.h: owns what the endpoints stand on: a model's text, its engine, and what they are called.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/engine_host.h"
#include "server/http/api.h"
#include "server/text/chat.h"
#include "server/text/tokenizer.h"

namespace verbatim::server {

// All of it is borrowed, and outlives whoever serves.
struct Service {
    const text::Tokenizer* tokenizer = nullptr;
    text::Chat* chat = nullptr;  // null: the model has no template; used on one thread only
    EngineHost* host = nullptr;
    std::string model;        // as clients call it
    std::string fingerprint;  // of arithmetic and weights
    int64_t max_model_len = 0;
    int32_t vocab_size = 0;
    std::vector<TokenId> stop_tokens;
    std::function<int64_t()> now;  // seconds since 1970
};

// The tokens that a request asks the engine to go on from. Errors: the template's, ids that are none, nothing at all.
[[nodiscard]] ApiResult<std::vector<TokenId>> prompt_of(const Service& service, const GenerateRequest& request,
                                                        text::WordCache& cache);

// Which conversation a request belongs to, by what comes first: the body, its metadata, a header, prompt_cache_key.
struct ConversationHint {
    std::optional<std::string> id;
    bool is_said = false;  // by the body or its metadata; what else there is may be shared by requests at one time
};
// `header`: the value of a header, empty where there is none.
[[nodiscard]] ConversationHint conversation_of(const GenerateRequest& request,
                                               const std::function<std::string(std::string_view)>& header);

// For the engine, one for each choice. The first one's answer goes into the conversation. Errors: the prompt and the
// answer do not fit the model; nobody can see the logits.
[[nodiscard]] ApiResult<std::vector<HostRequest>> host_requests(const Service& service, const GenerateRequest& request,
                                                                const ConversationHint& conversation,
                                                                const CacheSalt& salt, std::vector<TokenId> prompt);

[[nodiscard]] Json model_list(const Service& service);
[[nodiscard]] Json model_json(const Service& service);

// The answers of /tokenize and /detokenize.
[[nodiscard]] ApiResult<Json> tokenize(const Service& service, const TokenizeRequest& request, text::WordCache& cache);
[[nodiscard]] ApiResult<Json> detokenize(const Service& service, const std::vector<TokenId>& tokens);

}  // namespace verbatim::server
