// server/http/service.h: owns the services behind the endpoints: a model's text pipeline, its engine, and their names.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/model/state_tensors.h"
#include "server/engine_host.h"
#include "server/http/api.h"
#include "server/http/message_request.h"
#include "server/http/metrics.h"
#include "server/ledger/conversation_ledger.h"
#include "server/text/answer_form.h"
#include "server/text/chat.h"
#include "server/text/grammar_process.h"
#include "server/text/tokenizer.h"

namespace verbatim::server {

// What a head's file must agree with.
struct HeadIdentity {
    std::string model;  // digest of configuration and weights
    reference::StateTensors tensors;
    std::filesystem::path spool = {};          // the folder in which heads lie while they come; empty: the system's
    uint64_t max_bytes = uint64_t{512} << 20;  // of a head that comes
};

// Everything is borrowed, and outlives the endpoints.
struct Service {
    const text::Tokenizer* tokenizer = nullptr;
    text::Chat* chat = nullptr;                              // null: the model has no template; used on one thread only
    std::string chat_template;                               // its source
    text::ToolFormat tool_format = text::ToolFormat::kNone;  // of the model's calls; kNone: it has no form known here
    text::ReasoningFormat reasoning_format = text::ReasoningFormat::kNone;
    EngineHost* host = nullptr;
    ModelNames model;
    std::string fingerprint;  // of arithmetic and weights
    int64_t max_model_len = 0;
    int32_t vocab_size = 0;
    std::vector<TokenId> stop_tokens;
    text::GrammarProcess* grammars = nullptr;  // for their first masks; null: no token ends answers. Used on the thread
                                               // of `chat` only
    std::function<int64_t()> now;              // seconds since 1970
    std::optional<HeadIdentity> heads;         // none: heads are not exported and imported over HTTP
    std::function<RecordView()> record;        // called on the sockets' thread; null: no record is written
};

// The conversation of a request, by priority: the body, its metadata, a header, prompt_cache_key.
struct ConversationHint {
    std::optional<std::string> id;
    bool is_said = false;  // by the body or its metadata; simultaneous requests may share the weaker hints
};
// `header`: the value of a header, empty if absent.
[[nodiscard]] ConversationHint conversation_of(const GenerateRequest& request,
                                               const std::function<std::string(std::string_view)>& header);

// Errors: fields that need a named conversation, without one; a conversation of several prompts.
[[nodiscard]] std::optional<ApiError> conversation_problem(const GenerateRequest& request,
                                                           const ConversationHint& conversation);

// The ledger's data for a request: its conversation, if there is one, and an earlier answer.
struct History {
    std::optional<ConversationView> conversation;
    bool is_answered = false;
};
// From a lookup of the conversation that a request names. Errors: a suffix without a conversation, a turn_id of a
// different request, a ledger that cannot be read or written.
[[nodiscard]] ApiResult<History> history_of(const GenerateRequest& request, const std::string& conversation_id,
                                            Look look);

// The tokens of a request's prompt; none when the request is answered from the ledger.
struct Prompt {
    std::vector<TokenId> ids;
    AskedMessages messages;
    std::optional<RewrittenAnswer> rewritten;
    std::optional<Version> version;  // of the conversation that a suffix continues
    text::AnswerForm form;           // of the answer
};
// Of the prompt `which`; consumes the request's messages. Errors: the template's, invalid ids, an empty prompt.
[[nodiscard]] ApiResult<Prompt> prompt_of(const Service& service, GenerateRequest& request, size_t which,
                                          const History& history, text::WordCache& cache);
// What the choices of the prompt `which`, whose tokens are `ids`, begin with: with echo its text, else nothing.
[[nodiscard]] std::string echoed_text(const Service& service, const GenerateRequest& request, size_t which,
                                      std::span<const TokenId> ids);

[[nodiscard]] ReasoningTraits reasoning_traits(const Service& service);

// The first mask of the answer's grammar; without a grammar, or an answer, none. Errors: the grammar's; no process that
// runs it; a model without an end token.
[[nodiscard]] ApiResult<TokenMask> first_mask_of(const Service& service, const GenerateRequest& request);

// The engine's requests for a prompt, one for each sampled choice. The first one's answer is committed to the
// conversation, and with it the prompt is scored. Errors: the prompt and the answer do not fit the model; logits are
// requested and not available.
[[nodiscard]] ApiResult<std::vector<HostRequest>> host_requests(const Service& service, const GenerateRequest& request,
                                                                const ConversationHint& conversation,
                                                                const CacheSalt& salt, Prompt prompt,
                                                                const TokenMask& first_mask);

[[nodiscard]] Json model_list(const Service& service);
[[nodiscard]] Json model_json(const Service& service, const std::string& name);

// The answers of /tokenize and /detokenize.
[[nodiscard]] ApiResult<Json> tokenize(const Service& service, const TokenizeRequest& request, text::WordCache& cache);
// The answer of /tokenizer_info, as in vLLM: what a client needs to put a prompt together itself.
[[nodiscard]] Json tokenizer_info(const Service& service);
[[nodiscard]] Json detokenize(const Service& service, const std::vector<TokenId>& tokens);

}  // namespace verbatim::server
