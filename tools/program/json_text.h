// tools/program/json_text.h: JSON as text, of results and of what is written to files.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace verbatim::tools {

// What is no UTF-8, as names of files may be, becomes U+FFFD. `indent`: spaces a level; below 0 all is one line.
template <typename Json>
std::string json_text(const Json& json, int indent = 2) {
    return json.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace verbatim::tools
