// server/text/regex_parts.h: owns what a tokenizer's regex says: its characters as sets, the rest as it is written.
//
//   R1  whatever matches one character is a set; nothing else in the regex depends on Unicode
//   R2  a closed list: literals, classes, \r \n \t \f \v \xHH \x{H} \uHHHH \s \S \d \D \p{..} \P{..} of general
//       categories, `.`, groups (?:..) (?i:..) (..) (?=..) (?!..) (?>..), |, * + ? {n,m} lazy or possessive;
//       anything else is refused by name, for engines differ about it
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "server/text/unicode.h"

namespace verbatim::text {

struct RegexPart {
    int set = -1;      // index into RegexParts::sets, or
    std::string text;  // groups, alternatives and repetitions, as PCRE2 writes them
};

struct RegexParts {
    std::vector<RegexPart> parts;
    std::vector<CodePointSet> sets;  // no two are equal
};

// The syntax is Oniguruma's (Ruby), which the `tokenizers` library uses. Errors name what is not in the list, where.
Result<RegexParts> parse_regex(std::string_view pattern);

// A regex that matches `text` itself.
RegexParts literal_regex(std::string_view text);

}  // namespace verbatim::text
