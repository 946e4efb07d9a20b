// server/text/written_json.h: owns writing JSON as text, and operations on such texts without parsing them again.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/text/user_text.h"

namespace verbatim::text {

// Appends value.dump(), several times as fast for long texts. REQUIRES: its texts are UTF-8.
void append_json(std::string& out, const Json& value);
[[nodiscard]] std::string written(const Json& value);

void append_json_text(std::string& out, std::string_view text);

// [a,b,c] of the values.
[[nodiscard]] std::string written_list(const std::vector<std::string>& values);
// The values of a list that append_json() and written_list() wrote. Empty: not a list.
[[nodiscard]] std::optional<std::vector<std::string_view>> values_of_list(std::string_view list);

}  // namespace verbatim::text
