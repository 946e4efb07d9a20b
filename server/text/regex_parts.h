// server/text/regex_parts.h: owns the parsing of a tokenizer's regex: single characters as sets, the rest as written.
//
//   R1  every part that matches one character is a set; no other part depends on Unicode
//   R2  a closed list: literals, classes, \r \n \t \f \v \xHH \x{H} \uHHHH \s \S \d \D \p{..} \P{..} of general
//       categories, `.`, groups (?:..) (?i:..) (..) (?=..) (?!..) (?>..), |, * + ? {n,m} lazy or possessive;
//       anything else, where engines differ, is refused by name
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "server/text/unicode.h"

namespace verbatim::text {

struct RegexPart {
    int set = -1;      // index into RegexParts::sets, or
    std::string text;  // groups, alternatives and repetitions, in PCRE2's syntax
};

struct RegexParts {
    std::vector<RegexPart> parts;
    std::vector<CodePointSet> sets;  // distinct
};

// The syntax is Oniguruma's (Ruby), which the `tokenizers` library uses. Errors name the unsupported part and its
// place.
Result<RegexParts> parse_regex(std::string_view pattern);

// A regex that matches `text` literally.
RegexParts literal_regex(std::string_view text);

}  // namespace verbatim::text
