// server/text/user_text.h: owns keeping what users wrote apart from what the template wrote, while both are rendered.
//
// Every special token has a pivot, one of its characters. In users' texts a pivot is replaced, one for one, by a
// character that Unicode promises never to use, and put back when the special tokens have been found.
//   V1  a special token in a rendered conversation has a pivot that the template wrote
//   V2  putting back gives the text that rendering without stand-ins would have given, unless the template itself
//       looks for pivots in users' texts
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace verbatim::text {

using Json = nlohmann::ordered_json;  // members stay in the order that the client chose: templates show it

struct StandIn {
    char32_t character = 0;
    char32_t stand_in = 0;
};

// At least one character of every special token: few, and punctuation where there is a choice.
std::vector<char32_t> choose_pivots(const std::vector<std::string>& special_tokens);

// Replaces the pivots in every text and key of a JSON value, as Json::dump() writes one. Errors: not enough unused
// characters are left.
Result<std::vector<StandIn>> put_stand_ins(const std::vector<char32_t>& pivots, std::string& json);

std::string remove_stand_ins(std::string_view text, const std::vector<StandIn>& stand_ins);

}  // namespace verbatim::text
