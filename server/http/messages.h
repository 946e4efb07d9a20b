// server/http/messages.h: owns the validation of a chat's messages, and the form in which templates get them.
//
//   M1  a message has a role and a content, both texts: null or missing content is an empty text, parts become its
//       lines
//   M2  a member that is null is left out, and so is a tool_calls of no calls
//   M3  the arguments of a tool call are an object
#pragma once

#include <string>
#include <vector>

#include "server/http/api.h"

namespace verbatim::server {

// `messages`, `add_generation_prompt` and `continue_final_message` of a request's body. An explicit flag has vLLM's
// meaning; without either flag a last message of the assistant is continued, as in llama.cpp's server. Errors name the
// member (messages[1].tool_calls[0].function.arguments). REQUIRES: messages is present and not null.
// Tools and variables of the template are read as well (server/http/tools.h).
[[nodiscard]] ApiResult<AskedTemplate> read_chat(const Json& body);

// The messages of a chat in the templates' form (M1 to M3), for verbs that render templates without a server. Errors
// name the member (messages[1].content).
[[nodiscard]] ApiResult<Json> prepare_messages(const Json& list);

}  // namespace verbatim::server
