// server/http/api.h: owns what the HTTP interface says and understands, as values: requests read from JSON, answers
// and errors written to it. No sockets.
//
//   A1  a field that would change the answer and is not served is refused by its name, never passed over
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/ids.h"
#include "engine/ledger/ledger.h"
#include "engine/request/request.h"
#include "server/text/user_text.h"

namespace verbatim::server {

using text::Json;

// {"error": {"message", "type", "param", "code"}} and its status.
struct ApiError {
    int status = 400;
    std::string message;
    std::string param;  // the field, if one is at fault
    std::string code;
    [[nodiscard]] std::string type() const;
    [[nodiscard]] Json envelope() const;
};
template <typename T>
using ApiResult = tl::expected<T, ApiError>;

[[nodiscard]] ApiError api_error(const Refusal& refusal);

enum class ApiKind : uint8_t { kChat, kCompletion };

// POST /v1/chat/completions or /v1/completions.
struct GenerateRequest {
    ApiKind kind = ApiKind::kChat;
    Json messages;                    // of a chat
    std::string prompt;               // of a completion, or
    std::vector<TokenId> prompt_ids;  // its tokens
    bool prompt_is_ids = false;
    std::optional<std::string> conversation_id;
    std::optional<std::string> cache_salt;
    std::optional<int64_t> max_tokens;
    SamplingParams sampling;
    std::optional<uint64_t> seed;
    std::vector<std::string> stop;
    bool ignore_stop = false;  // ignore_eos
    bool use_cache = true;
    bool stream = false;
    bool include_usage = false;
};

// Errors have the status and the field. `model`: what this server calls its model.
[[nodiscard]] ApiResult<GenerateRequest> parse_generate_request(ApiKind kind, std::string_view body,
                                                                const std::string& model);

struct Usage {
    int64_t prompt_tokens = 0;
    int64_t completion_tokens = 0;
    int64_t cached_tokens = 0;
};

// What all parts of one answer have in common.
struct AnswerFrame {
    ApiKind kind = ApiKind::kChat;
    std::string id;
    std::string model;
    std::string fingerprint;
    int64_t created = 0;  // seconds since 1970
};

[[nodiscard]] const char* finish_name(FinishReason reason);  // "stop", "length"
[[nodiscard]] Json whole_answer(const AnswerFrame& frame, const std::string& text, FinishReason reason,
                                const Usage& usage);
// The first chunk of a chat's stream, which names the role.
[[nodiscard]] Json role_chunk(const AnswerFrame& frame);
[[nodiscard]] Json text_chunk(const AnswerFrame& frame, const std::string& text);
[[nodiscard]] Json finish_chunk(const AnswerFrame& frame, FinishReason reason);
[[nodiscard]] Json usage_chunk(const AnswerFrame& frame, const Usage& usage);

}  // namespace verbatim::server
