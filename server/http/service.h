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
#include "server/http/metrics.h"
#include "server/ledger/conversation_ledger.h"
#include "server/text/chat.h"
#include "server/text/tokenizer.h"

namespace verbatim::server {

// All of it is borrowed, and outlives whoever serves.
struct Service {
    const text::Tokenizer* tokenizer = nullptr;
    text::Chat* chat = nullptr;  // null: the model has no template; used on one thread only
    EngineHost* host = nullptr;
    ModelNames model;
    std::string fingerprint;  // of arithmetic and weights
    int64_t max_model_len = 0;
    int32_t vocab_size = 0;
    std::vector<TokenId> stop_tokens;
    std::function<int64_t()> now;        // seconds since 1970
    std::function<RecordView()> record;  // called on the thread of the sockets; null: no record is written
};

// Which conversation a request belongs to, by what comes first: the body, its metadata, a header, prompt_cache_key.
struct ConversationHint {
    std::optional<std::string> id;
    bool is_said = false;  // by the body or its metadata; what else there is may be shared by requests at one time
};
// `header`: the value of a header, empty where there is none.
[[nodiscard]] ConversationHint conversation_of(const GenerateRequest& request,
                                               const std::function<std::string(std::string_view)>& header);

// Errors: what is asked of a conversation that is not named.
[[nodiscard]] std::optional<ApiError> conversation_problem(const GenerateRequest& request,
                                                           const ConversationHint& conversation);

// What the ledger has for a request: its conversation, if there is one; whether it was answered before.
struct History {
    std::optional<ConversationView> conversation;
    bool is_answered = false;
};
// Out of a look at the conversation that a request names. Errors: a suffix of nothing, a turn_id that stands for
// something else, a ledger that cannot be written.
[[nodiscard]] ApiResult<History> history_of(const GenerateRequest& request, const std::string& conversation_id,
                                            Look look);

// The tokens that a request asks the engine to go on from; none when it is answered.
struct Prompt {
    std::vector<TokenId> ids;
    AskedMessages messages;
    std::optional<Version> version;  // of the conversation that a suffix goes on from
};
// Takes the request's messages. Errors: the template's, ids that are none, nothing at all.
[[nodiscard]] ApiResult<Prompt> prompt_of(const Service& service, GenerateRequest& request, const History& history,
                                          text::WordCache& cache);

// For the engine, one for each choice. The first one's answer goes into the conversation. Errors: the prompt and the
// answer do not fit the model; nobody can see the logits.
[[nodiscard]] ApiResult<std::vector<HostRequest>> host_requests(const Service& service, const GenerateRequest& request,
                                                                const ConversationHint& conversation,
                                                                const CacheSalt& salt, Prompt prompt);

[[nodiscard]] Json model_list(const Service& service);
[[nodiscard]] Json model_json(const Service& service, const std::string& name);

// The answers of /tokenize and /detokenize.
[[nodiscard]] ApiResult<Json> tokenize(const Service& service, const TokenizeRequest& request, text::WordCache& cache);
[[nodiscard]] Json detokenize(const Service& service, const std::vector<TokenId>& tokens);

}  // namespace verbatim::server
