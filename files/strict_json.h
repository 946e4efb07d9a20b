// files/strict_json.h: JSON from outside; refuses everything that parsers read differently.
//
//   J1  no duplicate keys in any object, at most 64 levels of nesting, valid UTF-8, nothing after the value,
//       no NUL byte anywhere
//   J2  in files the literals Infinity and -Infinity, which Python writes, become the strings "Infinity" and
//       "-Infinity"; in ordered documents (clients' requests) they are errors
//   J3  parsing takes time linear in the text's length, also for a million members of one object
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "engine/base/result.h"

namespace verbatim {

// `source` names the file in errors, which say line and column.
Result<nlohmann::json> parse_strict_json(std::string_view text, std::string_view source);
// The same, with members in the order of the text.
Result<nlohmann::ordered_json> parse_strict_ordered_json(std::string_view text, std::string_view source);

// A value as an error quotes it: one line, at most ~60 characters, control characters escaped.
std::string quote_json(const nlohmann::json& value);
std::string quote_text(std::string_view text);

}  // namespace verbatim
