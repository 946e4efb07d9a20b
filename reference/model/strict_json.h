// reference/model/strict_json.h: JSON from outside, with everything refused that parsers differ about.
//
//   J1  no duplicate keys in any object, at most 64 levels of nesting, valid UTF-8, nothing after the value,
//       no NUL byte anywhere
//   J2  of files the literals Infinity and -Infinity, which Python writes, become the strings "Infinity" and
//       "-Infinity"; where members are in order (what clients send) they are errors
//   J3  it takes the time that the text's length does, whatever it says: a million members of one object too
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "engine/base/result.h"

namespace verbatim::reference {

// `source` names the file in errors, which say line and column.
Result<nlohmann::json> parse_strict_json(std::string_view text, std::string_view source);
// The same, with members in the order of the text.
Result<nlohmann::ordered_json> parse_strict_ordered_json(std::string_view text, std::string_view source);

// A value as it is quoted in an error: one line, at most ~60 characters, control characters escaped.
std::string quote_json(const nlohmann::json& value);
std::string quote_text(std::string_view text);

}  // namespace verbatim::reference
