// server/text/user_text.h: owns keeping users' texts apart from the template's text during rendering.
//
// Every special token has a pivot, one of its characters. In users' texts each pivot is replaced by a stand-in: a
// Unicode noncharacter. The pivots are restored after the special tokens have been found.
//   V1  a special token in a rendered conversation has a pivot that the template wrote
//   V2  restoring gives the text of a rendering without stand-ins, unless the template searches for pivots in users'
//       texts
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace verbatim::text {

using Json = nlohmann::ordered_json;  // keeps the client's member order, which templates show

struct StandIn {
    char32_t character = 0;
    char32_t stand_in = 0;
};

// At least one character of every special token: few, and punctuation where possible.
std::vector<char32_t> choose_pivots(const std::vector<std::string>& special_tokens);

// Replaces the pivots in every text and key of JSON values in Json::dump()'s form, with the same stand-ins in all of
// them. Errors: not enough unused characters are left.
Result<std::vector<StandIn>> put_stand_ins(const std::vector<char32_t>& pivots, std::span<std::string* const> jsons);
Result<std::vector<StandIn>> put_stand_ins(const std::vector<char32_t>& pivots, std::string& json);

std::string remove_stand_ins(std::string_view text, const std::vector<StandIn>& stand_ins);

}  // namespace verbatim::text
