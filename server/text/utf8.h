// server/text/utf8.h: owns reading and writing UTF-8, one character at a time.
//
//   U1  valid means: shortest form, no surrogates, at most U+10FFFF (Unicode 16.0, table 3-7)
//   U2  invalid bytes are counted in maximal subparts: each is replaced by one replacement character
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace verbatim::text {

// A character at the start of some bytes, or the kind of error.
struct Utf8Step {
    enum class Kind : uint8_t { kCharacter, kInvalid, kIncomplete };
    Kind kind = Kind::kInvalid;
    char32_t code_point = 0;  // of a character
    int num_bytes = 0;        // at least 1; of kIncomplete: all bytes, which further bytes could complete
};

Utf8Step read_utf8(std::string_view bytes);  // REQUIRES: not empty
void append_utf8(std::string& to, char32_t code_point);

// The first byte that belongs to no valid character; empty when there is none.
std::optional<size_t> first_invalid_utf8(std::string_view bytes);

// The character that starts at `at`; moves `at` past it. REQUIRES: valid UTF-8.
inline char32_t next_character(std::string_view text, size_t& at) {
    const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i])); };
    const char32_t lead = byte(at);
    if (lead < 0x80) return ++at, lead;
    const size_t begin = at;
    if (lead < 0xE0) return at += 2, (lead & 0x1F) << 6 | (byte(begin + 1) & 0x3F);
    if (lead < 0xF0) {
        at += 3;
        return (lead & 0x0F) << 12 | (byte(begin + 1) & 0x3F) << 6 | (byte(begin + 2) & 0x3F);
    }
    at += 4;
    return (lead & 0x07) << 18 | (byte(begin + 1) & 0x3F) << 12 | (byte(begin + 2) & 0x3F) << 6 |
           (byte(begin + 3) & 0x3F);
}

}  // namespace verbatim::text
