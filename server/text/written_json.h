// server/text/written_json.h: owns writing JSON as text, and what is done to such texts without reading them again.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/text/user_text.h"

namespace verbatim::text {

// What value.dump() appends, and several times as fast for long texts. REQUIRES: its texts are UTF-8.
void append_json(std::string& out, const Json& value);
[[nodiscard]] std::string written(const Json& value);

// [a,b,c] of the values.
[[nodiscard]] std::string written_list(const std::vector<std::string>& values);
// The values of a list as append_json() and written_list() have written it. Empty: it is none.
[[nodiscard]] std::optional<std::vector<std::string_view>> values_of_list(std::string_view list);

}  // namespace verbatim::text
