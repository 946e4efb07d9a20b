// server/text/split_regex.h: owns a tokenizer's compiled regex, and finds its matches in text.
//
// Characters that no part of the regex distinguishes are one class. The text becomes one byte per character, its class,
// and PCRE2 sees bytes only: PCRE2's Unicode tables are not used, and every set is a bitmap.
//   S1  matches are those of a backtracking search from left to right, and none is empty
//   S2  a search that costs more than a fixed multiple of the text is an error, not a hang
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "server/text/regex_parts.h"

namespace verbatim::text {

// One byte for every character.
class CharacterClasses {
public:
    // Errors: more than 64 sets, or more than 255 classes.
    static Result<CharacterClasses> of(const std::vector<CodePointSet>& sets);
    [[nodiscard]] uint8_t of(char32_t c) const { return pages_[page_of_[c / kPage] * kPage + c % kPage]; }
    // [\x01\x07..]: the classes of `set`, which is one of the given sets.
    [[nodiscard]] std::string bracket(int set) const;

private:
    static constexpr char32_t kPage = 128;
    std::vector<uint64_t> sets_of_;  // by class: bit i is set i
    std::vector<uint16_t> page_of_;
    std::vector<uint8_t> pages_;
};

// A piece of a text, in bytes.
struct TextRange {
    size_t begin = 0;
    size_t end = 0;
    friend bool operator==(const TextRange&, const TextRange&) = default;
};

class SplitRegex {
public:
    // Errors name the part that cannot be compiled; a regex that matches the empty text is an error.
    static Result<SplitRegex> compile(const RegexParts& parts);
    ~SplitRegex();
    SplitRegex(SplitRegex&&) noexcept;
    SplitRegex& operator=(SplitRegex&&) noexcept;

    // Every match, ascending. REQUIRES: valid UTF-8.
    [[nodiscard]] Status find_all(std::string_view text, std::vector<TextRange>& matches) const;

private:
    struct Compiled;
    SplitRegex(CharacterClasses classes, std::unique_ptr<Compiled> compiled);
    CharacterClasses classes_;
    std::unique_ptr<Compiled> compiled_;
};

}  // namespace verbatim::text
