// tools/program/verdict_text.h: owns how every verb shows a verdict and the share that was compared.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "reference/records/verdict.h"

namespace verbatim::tools {

// "identical", "different", "not all compared"; nothing at all was compared: "nothing compared".
[[nodiscard]] std::string verdict_words(records::Verdict verdict, const records::ComparedShare& share);

// "compared: 5 of 70 requests, 1085 of 20310 positions", then a line for each reason why something was left out. Every
// line begins with `prefix`.
[[nodiscard]] std::string share_lines(const records::ComparedShare& share, const std::string& prefix = "");

// What of the share was left out, in one line: "ordinary requests, ...: 8 requests, 300 positions; ..."; empty:
// nothing.
[[nodiscard]] std::string left_out_line(const records::ComparedShare& share);

// For each unit {"compared", "total", "fraction"}, the fraction null of nothing; "left_out": a list of {"reason",
// "promised", and a count for each unit}, with "count_known": false where how much it is cannot be known.
[[nodiscard]] nlohmann::ordered_json compared_share_json(const records::ComparedShare& share);

}  // namespace verbatim::tools
