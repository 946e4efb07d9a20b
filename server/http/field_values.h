// server/http/field_values.h: owns the parsing of JSON fields' values (numbers, texts, lists) and the errors of invalid
// ones.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/ids.h"
#include "server/http/api.h"

namespace verbatim::server {

[[nodiscard]] std::string quoted(const Json& value);

// 400 invalid_value: "FIELD is VALUE, wanted WANTED".
[[nodiscard]] ApiError wrong_field(const std::string& field, const Json& value, std::string_view wanted);

// 400 missing_required_parameter.
[[nodiscard]] ApiError missing_field(const std::string& field);

// Accepts a float without a fraction: JSON has one kind of number.
[[nodiscard]] ApiResult<int64_t> whole_number(const std::string& field, const Json& value, int64_t least,
                                              int64_t most = std::numeric_limits<int64_t>::max());
[[nodiscard]] ApiResult<float> number(const std::string& field, const Json& value, double least, double most);
[[nodiscard]] ApiResult<bool> truth(const std::string& field, const Json& value);
// A client-chosen name (server/http/api.h A2).
[[nodiscard]] ApiResult<std::string> identifier(const std::string& field, const Json& value);
// `wanted`: the field's description in errors.
[[nodiscard]] ApiResult<std::vector<TokenId>> token_ids(const std::string& field, const Json& value, int32_t vocab_size,
                                                        std::string_view wanted);

}  // namespace verbatim::server
