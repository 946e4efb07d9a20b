// server/http/tools.h: owns the validation of what a chat offers and says besides its messages: tools, and variables of
// the template.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "server/http/api.h"
#include "server/text/answer_form.h"

namespace verbatim::server {

inline constexpr size_t kMaxToolNameBytes = 128;

// `tools`, `tool_choice` and `parallel_tool_calls` of a request's body. Errors name the member
// (tools[1].function.name). Absent ones stay as they are in `tools`.
[[nodiscard]] tl::expected<void, ApiError> read_tools(const Json& body, AskedTools& tools);

// A character of a template variable's name.
[[nodiscard]] bool is_of_variable(char c);

// `chat_template_kwargs` and `reasoning_effort` of a request's body as the members of a JSON object.
[[nodiscard]] tl::expected<void, ApiError> read_template_variables(const Json& body, Json& variables);

}  // namespace verbatim::server
