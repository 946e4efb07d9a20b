// files/quick_json.h: a fast JSON reader on simdjson, for long requests.
//
//   Q1  true: nlohmann::json::sax_parse() would have reported the same events (but -0 is reported as 0) and no error
//   Q2  false: simdjson or the receiver refused the text, and sax_parse() decides; there is no error here
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace verbatim {

using JsonEvents = nlohmann::json_sax<nlohmann::json>;

// REQUIRES: the receiver limits the depth.
bool read_quickly(std::string_view text, JsonEvents& told);

}  // namespace verbatim
