// server/http/message_request.h: owns reading the requests of /v1/messages and /v1/messages/count_tokens (Anthropic's
// Messages API): their translation into chats (server/http/translated_chat.h).
#pragma once

#include <cstdint>

#include "server/http/api.h"

namespace verbatim::server {

// What the model's template says of reasoning.
struct ReasoningTraits {
    bool is_switched = false;  // it has the variable enable_thinking
    bool is_there = false;     // the model's answers may begin with reasoning
};

// The result has `is_message`. Errors name the client's fields.
[[nodiscard]] ApiResult<GenerateRequest> parse_message_request(const Json& body, const ReasoningTraits& reasoning,
                                                               const ModelNames& model, int32_t vocab_size);
[[nodiscard]] ApiResult<TokenizeRequest> parse_count_request(const Json& body, const ReasoningTraits& reasoning,
                                                             const ModelNames& model);

}  // namespace verbatim::server
