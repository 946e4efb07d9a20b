// reference/model/quick_json.h: owns reading JSON many bytes at a time, by simdjson: a server's requests are long.
//
//   Q1  true means: nlohmann::json::sax_parse() would have told the same, but that -0 is told as 0, and would have
//       found no fault
//   Q2  whatever simdjson or the one who is told refuses is false, and sax_parse()'s to judge: there is no error here
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace verbatim::reference {

using JsonEvents = nlohmann::json_sax<nlohmann::json>;

// REQUIRES: who is told limits the depth.
bool read_quickly(std::string_view text, JsonEvents& told);

}  // namespace verbatim::reference
