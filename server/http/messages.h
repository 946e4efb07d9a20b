// server/http/messages.h: owns what the messages of a chat may be, and the form in which templates get them.
//
//   M1  a message has a role and a content, both texts: null or no content is an empty text, parts are its lines
//   M2  a member that is null is left out, and so is a tool_calls of no calls
//   M3  the arguments of a tool call are an object
#pragma once

#include <string>
#include <vector>

#include "server/http/api.h"

namespace verbatim::server {

struct AskedChat {
    std::vector<std::string> messages;  // each as JSON (server/text/written_json.h)
    ChatEnd end = ChatEnd::kAnswer;
};

// `messages`, `add_generation_prompt` and `continue_final_message` of a request's body. A flag that is said means what
// it means in vLLM; with neither of them a last message of the assistant is continued, as in llama.cpp's server.
// Errors name the member (messages[1].tool_calls[0].function.arguments). REQUIRES: messages is there, and not null.
[[nodiscard]] ApiResult<AskedChat> read_chat(const Json& body);

// The messages of a chat as templates get them (M1 to M3), for the verbs that render templates without a server. Errors
// name the member (messages[1].content).
[[nodiscard]] ApiResult<Json> prepare_messages(const Json& list);

}  // namespace verbatim::server
