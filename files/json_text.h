// files/json_text.h: the text of JSON results and files.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace verbatim {

// Bytes that are not UTF-8, as in file names, become U+FFFD. `indent`: spaces per level; below 0: one line.
template <typename Json>
std::string json_text(const Json& json, int indent = 2) {
    return json.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace verbatim
