// reference/model/plain_json.h: owns reading JSON whose texts are long, several times as fast as the library does. It
// tells a builder what it sees, in the library's own words.
//
//   R1  true means: the library would have told the builder the same, and would have found no fault
//   R2  whatever it is not sure of is false, and the library's to judge: what is no JSON, what the builder refuses
//   R3  it takes the time that the text's length does
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace verbatim::reference {

template <typename Json, typename Builder>
class PlainJsonReader {
public:
    // Borrows both.
    PlainJsonReader(std::string_view text, Builder& builder) : text_(text), builder_(builder) {}

    // REQUIRES: the builder limits the depth.
    bool read() {
        if (!read_value()) return false;
        skip_spaces();
        return at_ == text_.size();
    }

private:
    [[nodiscard]] char next() const { return at_ < text_.size() ? text_[at_] : '\0'; }
    void skip_spaces() {
        while (next() == ' ' || next() == '\n' || next() == '\r' || next() == '\t') ++at_;
    }
    bool take(char c) {
        skip_spaces();
        if (next() != c) return false;
        ++at_;
        return true;
    }
    bool take_word(std::string_view word) {
        if (!text_.substr(at_).starts_with(word)) return false;
        at_ += word.size();
        return true;
    }

    bool read_value() {
        skip_spaces();
        switch (next()) {
            case '{': return read_object();
            case '[': return read_array();
            case '"': {
                std::string value;
                return read_text(value) && builder_.string(value);
            }
            case 't': return take_word("true") && builder_.boolean(true);
            case 'f': return take_word("false") && builder_.boolean(false);
            case 'n': return take_word("null") && builder_.null();
            default: return read_number();
        }
    }
    bool read_object() {
        ++at_;
        if (!builder_.start_object(kUnknownSize)) return false;
        if (take('}')) return builder_.end_object();
        do {
            std::string key;
            skip_spaces();
            if (next() != '"' || !read_text(key) || !builder_.key(key)) return false;
            if (!take(':') || !read_value()) return false;
        } while (take(','));
        return take('}') && builder_.end_object();
    }
    bool read_array() {
        ++at_;
        if (!builder_.start_array(kUnknownSize)) return false;
        if (take(']')) return builder_.end_array();
        do {
            if (!read_value()) return false;
        } while (take(','));
        return take(']') && builder_.end_array();
    }

    // Whole numbers of a few digits; others are the library's.
    bool read_number() {
        const size_t begin = at_;
        while (next() != '\0' && std::string_view("+-.0123456789eE").find(next()) != std::string_view::npos) ++at_;
        const std::string_view token = text_.substr(begin, at_ - begin);
        const bool is_negative = token.starts_with('-');
        const std::string_view digits = token.substr(is_negative ? 1 : 0);
        constexpr size_t kFewDigits = 18;  // that 63 bits hold
        const bool is_whole = digits.find_first_not_of("0123456789") == std::string_view::npos;
        const bool has_leading_zero = digits.size() > 1 && digits[0] == '0';
        if (!is_whole || digits.empty() || digits.size() > kFewDigits || has_leading_zero)
            return !token.empty() && Json::sax_parse(token, &builder_);
        int64_t value = 0;
        for (const char digit : digits) value = value * 10 + (digit - '0');
        return is_negative ? builder_.number_integer(-value) : builder_.number_unsigned(static_cast<uint64_t>(value));
    }

    // Most bytes of a text stand for themselves, and are taken many at a time.
    bool read_text(std::string& value) {
        const size_t end = text_.size();
        for (size_t begin = ++at_; at_ < end; begin = at_) {
            while (at_ < end && kStandsForItself[byte(at_)]) ++at_;
            value.append(text_, begin, at_ - begin);
            if (at_ == end) return false;
            if (text_[at_] == '"') return ++at_, true;
            if (text_[at_] == '\\' ? !read_escape(value) : !read_character(value)) return false;
        }
        return false;
    }
    [[nodiscard]] uint8_t byte(size_t at) const { return static_cast<uint8_t>(text_[at]); }

    // Characters by their number are the library's where they are surrogates.
    bool read_escape(std::string& value) {
        constexpr std::string_view kNames = "\"\\/bfnrt";
        constexpr std::string_view kMeant = "\"\\/\b\f\n\r\t";
        const char name = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
        at_ += 2;
        if (name == 'u') return read_code_unit(value);
        const size_t which = kNames.find(name);
        if (name == '\0' || which == std::string_view::npos) return false;
        value += kMeant[which];
        return true;
    }
    bool read_code_unit(std::string& value) {
        uint32_t unit = 0;
        if (at_ + 4 > text_.size()) return false;
        for (const size_t end = at_ + 4; at_ < end; ++at_) {
            const size_t digit = std::string_view("0123456789abcdefABCDEF").find(text_[at_]);
            if (digit == std::string_view::npos) return false;
            unit = unit * 16 + static_cast<uint32_t>(digit < 16 ? digit : digit - 6);
        }
        if (unit >= 0xD800 && unit < 0xE000) return false;
        const auto add = [&](uint32_t bits) { value += static_cast<char>(static_cast<uint8_t>(bits)); };
        if (unit < 0x80) return add(unit), true;
        if (unit < 0x800) return add(0xC0 | unit >> 6), add(0x80 | (unit & 0x3F)), true;
        return add(0xE0 | unit >> 12), add(0x80 | (unit >> 6 & 0x3F)), add(0x80 | (unit & 0x3F)), true;
    }
    // A character of several bytes: the shortest form, no surrogate, at most U+10FFFF (Unicode 16.0, table 3-7).
    bool read_character(std::string& value) {
        const uint8_t lead = byte(at_);
        const size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
        if (lead < 0xC2 || lead > 0xF4 || at_ + size > text_.size()) return false;
        const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
        const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
        bool is_valid = byte(at_ + 1) >= low && byte(at_ + 1) <= high;
        for (size_t i = 2; i < size; ++i) is_valid = is_valid && (byte(at_ + i) & 0xC0) == 0x80;
        value.append(text_, at_, size);
        at_ += size;
        return is_valid;
    }

    static constexpr auto kUnknownSize = static_cast<size_t>(-1);
    static constexpr std::array<bool, 256> kStandsForItself = [] {
        std::array<bool, 256> stands{};
        for (size_t c = 0x20; c < 0x80; ++c) stands[c] = c != '"' && c != '\\';
        return stands;
    }();
    std::string_view text_;
    size_t at_ = 0;
    Builder& builder_;
};

}  // namespace verbatim::reference
