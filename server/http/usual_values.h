// server/http/usual_values.h: owns the fields that are served with the values alone by which clients say "as usual", in
// the words of OpenAI's, vLLM's and llama.cpp's interfaces.
#pragma once

#include <optional>
#include <string>

#include "server/http/api.h"

namespace verbatim::server {

// Empty: the value changes nothing. 400 unsupported_value names the values that do so, 400 unsupported_parameter a
// field that is not known at all.
[[nodiscard]] std::optional<ApiError> problem_of_usual_value(ApiKind kind, const std::string& field, const Json& value);

}  // namespace verbatim::server
