// tools/program/verdict_text.h: owns the output of a verdict, the compared share and a difference, for every verb.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "files/junit.h"
#include "reference/records/comparison.h"
#include "reference/records/verdict.h"

namespace verbatim::tools {

// "identical", "different", "not all compared"; "nothing compared" for an empty share.
[[nodiscard]] std::string verdict_words(records::Verdict verdict, const records::ComparedShare& share);

// "compared: 5 of 70 requests, 1085 of 20310 positions", then a line per reason for omissions. Every line begins with
// `prefix`.
[[nodiscard]] std::string share_lines(const records::ComparedShare& share, const std::string& prefix = "");

// The omissions in one line: "ordinary requests, ...: 8 requests, 300 positions; ..."; empty: none.
[[nodiscard]] std::string left_out_line(const records::ComparedShare& share);

// The first difference, or what was left out; empty for the verdict `same`.
[[nodiscard]] std::string why_not_same(const records::Comparison& comparison);

// The outcome, message and output of a test case: a difference is a failure, a verdict of not all compared an error.
[[nodiscard]] JunitCase junit_case(const records::Comparison& comparison);

// For each unit {"compared", "total", "fraction"}, the fraction null for a total of 0; "left_out": a list of {"reason",
// "promised", and a count for each unit}, with "count_known": false where the count is unknown.
[[nodiscard]] nlohmann::ordered_json compared_share_json(const records::ComparedShare& share);

// {"step", "request", "position", "layer", "op", "element", "recorded", "computed", "ulps", "inputs_equal"}; null where
// a value is unknown.
[[nodiscard]] nlohmann::ordered_json record_difference_json(const records::RecordDifference& difference);
[[nodiscard]] nlohmann::ordered_json compared_json(const records::ComparedCounts& compared);

}  // namespace verbatim::tools
