// server/http/api.h: owns the HTTP interface as values: requests parsed from JSON, answers and errors written to it. No
// sockets.
//
//   A1  an unsupported field that would change the answer is refused by name, never ignored
//   A2  names that clients choose (conversations, salts) have no control characters
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/digest.h"
#include "engine/base/ids.h"
#include "engine/ledger/ledger.h"
#include "engine/request/request.h"
#include "server/text/answer_form.h"
#include "server/text/user_text.h"

namespace verbatim::server {

using text::Json;

// {"error": {"message", "type", "param", "code"}} and its status.
struct ApiError {
    int status = 400;
    std::string message;
    std::string param;  // the field at fault, if any
    std::string code;
    [[nodiscard]] std::string type() const;
    [[nodiscard]] Json envelope() const;
};
template <typename T>
using ApiResult = tl::expected<T, ApiError>;

[[nodiscard]] ApiError api_error(const Refusal& refusal);
[[nodiscard]] ApiError ledger_problem(const std::string& why);

inline constexpr size_t kMaxIdBytes = 256;  // of a client-chosen name

enum class ApiKind : uint8_t { kChat, kCompletion };
[[nodiscard]] const char* input_field(ApiKind kind);  // the input field: messages, prompt

// The end of a rendered chat: the start of the assistant's answer, inside the last message, or after it.
enum class ChatEnd : uint8_t { kAnswer, kContinued, kNothing };

// The tools of a chat, and which of them the answer may or must call.
struct AskedTools {
    enum class Choice : uint8_t { kAuto, kNone, kRequired, kNamed };
    std::string list;                                      // JSON, as the client wrote it; empty: none
    std::shared_ptr<const text::ToolFunctions> functions;  // null: none
    Choice choice = Choice::kAuto;
    std::string named;    // kNamed: the function
    bool several = true;  // parallel_tool_calls
    [[nodiscard]] bool are_offered() const { return functions != nullptr && choice != Choice::kNone; }
};

// What a chat's template gets.
struct AskedTemplate {
    std::vector<std::string> messages;  // each as JSON (server/text/written_json.h)
    ChatEnd end = ChatEnd::kAnswer;
    AskedTools tools;
    Json variables = Json::object();  // by chat_template_kwargs and reasoning_effort
};

// The names under which clients may request the model.
struct ModelNames {
    std::vector<std::string> all;  // the first one is reported in answers
    bool takes_any = false;        // any name is accepted
    [[nodiscard]] const std::string& first() const { return all.front(); }
    [[nodiscard]] bool contains(std::string_view name) const;
};

// A field of a chat, and the client's field that it comes from (server/http/translated_chat.h).
struct FieldOrigin {
    std::string field;
    std::string origin;
};
struct ResponseRequest;  // server/http/response_request.h

// Of a completion: a text, or its tokens.
struct AskedPrompt {
    std::string text;
    std::vector<TokenId> ids;
    bool is_ids = false;
};

// POST /v1/chat/completions or /v1/completions, or what is translated into the first one.
struct GenerateRequest {
    ApiKind kind = ApiKind::kChat;
    AskedTemplate chat;                           // of a chat
    std::vector<AskedPrompt> prompts;             // of a completion: at least one
    int32_t vocab_size = 0;                       // of the model: bounds the prompts' ids
    std::optional<std::string> conversation_id;   // from the body or its metadata
    std::optional<std::string> prompt_cache_key;  // the weakest hint for the conversation
    std::optional<std::string> cache_salt;
    int64_t num_choices = 1;               // of each prompt
    std::optional<int64_t> best_of;        // so many are sampled, the likeliest num_choices of them are the answer
    bool echo = false;                     // the choices begin with the prompt
    std::optional<int32_t> num_log_probs;  // of every sampled token, and of this many most likely ones; with echo of
                                           // the prompt's, too
    std::optional<int32_t> num_prompt_log_probs;  // the same of the prompt's tokens, in a separate list
    int64_t scored_from = 0;                      // logprob_start_len: the first of the prompt's tokens with these
    std::optional<int64_t> max_tokens;
    SamplingParams sampling;
    std::optional<uint64_t> seed;
    std::vector<std::string> stop;
    std::vector<TokenId> stop_token_ids;  // besides the model's
    bool ignore_stop = false;             // ignore_eos: the model's end no answer
    std::string grammar;                  // of the answer (server/http/structured_output.h); empty: none
    std::string grammar_field;            // that asks for it
    bool use_cache = true;
    bool stream = false;
    bool include_usage = false;
    bool continuous_usage = false;  // usage in every chunk
    bool shows_details = false;     // return_turn_details: the choices have turn_details
    bool suffix_only = false;       // the prompt continues the committed tokens of the conversation
    std::optional<std::string> turn_id;
    std::optional<std::string> parent_head;
    Digest content;  // with a turn_id: of the request's content, independent of the answer's format
    std::shared_ptr<ResponseRequest> response;  // of POST /v1/responses
    bool is_message = false;                    // of POST /v1/messages
    std::vector<FieldOrigin> origins;           // of these two

    [[nodiscard]] size_t num_prompts() const { return kind == ApiKind::kChat ? 1 : prompts.size(); }
    [[nodiscard]] size_t num_sampled_choices() const { return static_cast<size_t>(best_of.value_or(num_choices)); }
    // Whether log probabilities of the prompt's tokens are asked for.
    [[nodiscard]] bool is_scored() const { return num_prompt_log_probs || (echo && num_log_probs); }
};

// The body as a JSON object with nothing ambiguous in it.
[[nodiscard]] ApiResult<Json> parse_body(std::string_view body);

// Errors have the status and the field. Token ids of a request are below `vocab_size`, the rows of the model; its
// tokenizer may have fewer tokens.
[[nodiscard]] ApiResult<GenerateRequest> parse_generate_request(ApiKind kind, std::string_view body,
                                                                const ModelNames& model, int32_t vocab_size);
[[nodiscard]] ApiResult<GenerateRequest> read_generate_request(ApiKind kind, const Json& body, const ModelNames& model,
                                                               int32_t vocab_size);

// POST /tokenize, compatible with vLLM: a text or messages.
struct TokenizeRequest {
    std::optional<std::string> prompt;
    AskedTemplate chat;
    bool add_special_tokens = true;  // for a prompt
};
[[nodiscard]] ApiResult<TokenizeRequest> parse_tokenize_request(std::string_view body, const ModelNames& model);
[[nodiscard]] ApiResult<TokenizeRequest> read_tokenize_request(const Json& body, const ModelNames& model);
// POST /detokenize: the tokens.
[[nodiscard]] ApiResult<std::vector<TokenId>> parse_detokenize_request(std::string_view body, const ModelNames& model,
                                                                       int32_t vocab_size);

// Whether the text is valid as a client's name of a conversation or a salt (A2).
[[nodiscard]] bool is_identifier(std::string_view text);

}  // namespace verbatim::server
