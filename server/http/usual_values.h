// server/http/usual_values.h: owns the fields that are accepted only with their default values, in the spellings of
// OpenAI's, vLLM's and llama.cpp's interfaces.
#pragma once

#include <optional>
#include <string>

#include "server/http/api.h"

namespace verbatim::server {

// Empty: the value changes nothing. 400 unsupported_value lists the accepted values, 400 unsupported_parameter names an
// unknown field.
[[nodiscard]] std::optional<ApiError> problem_of_usual_value(ApiKind kind, const std::string& field, const Json& value);

}  // namespace verbatim::server
