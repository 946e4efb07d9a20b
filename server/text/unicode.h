// server/text/unicode.h: owns sets of characters and the properties that regexes name.
//
//   C1  ranges are ascending, neither overlap nor touch, and lie in 0..10FFFF
//   C2  properties are those of one pinned version (server/text/unicode_tables.h), independent of installed libraries
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace verbatim::text {

constexpr char32_t kLastCodePoint = 0x10FFFF;

struct CodePointRange {
    char32_t first = 0;
    char32_t last = 0;  // included
    friend bool operator==(const CodePointRange&, const CodePointRange&) = default;
};

class CodePointSet {
public:
    CodePointSet() = default;
    CodePointSet(std::vector<CodePointRange> ranges);  // in any order, overlapping or not
    [[nodiscard]] const std::vector<CodePointRange>& ranges() const { return ranges_; }
    [[nodiscard]] bool contains(char32_t code_point) const;
    [[nodiscard]] CodePointSet complement() const;
    [[nodiscard]] CodePointSet united(const CodePointSet& other) const;
    friend bool operator==(const CodePointSet&, const CodePointSet&) = default;

private:
    std::vector<CodePointRange> ranges_;
};

// Characters whose general category is `name` ("Lu") or begins with it ("L"). Empty for any other name.
std::optional<CodePointSet> general_category(std::string_view name);
// The set of \s: the property White_Space.
const CodePointSet& white_space();

// The character and its equals without case, for ASCII; any other character stands for itself alone.
CodePointSet ascii_case_folded(char32_t code_point);

}  // namespace verbatim::text
