// server/http/response_request.h: owns reading the requests of /v1/responses (OpenAI's Responses API): their
// translation into chats (server/http/translated_chat.h), and what their answers repeat of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "server/http/api.h"

namespace verbatim::server {

// What a request has besides its chat.
struct ResponseRequest {
    std::string number;  // unique; the id ends with it
    std::string id;      // of the response; set with its place (server/http/response_chain.h)
    std::optional<std::string> previous_id;
    bool is_stored = true;
    bool has_instructions = false;  // the first message of the chat
    Json repeated;                  // members of the answer
};

// The result has `response`. Errors name the client's fields.
[[nodiscard]] ApiResult<GenerateRequest> parse_response_request(const Json& body, const ModelNames& model,
                                                                int32_t vocab_size);

// The functions of a list of tools as a response repeats it, where it is right; null: there are none.
[[nodiscard]] std::shared_ptr<const text::ToolFunctions> functions_of_response(const Json& tools);

}  // namespace verbatim::server
