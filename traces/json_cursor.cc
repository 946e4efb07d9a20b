#include "traces/json_cursor.h"

#include <cmath>

namespace verbatim::traces {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

void append_utf8(uint32_t code, std::string& out) {
    const auto tail = [&out](uint32_t bits) { out += static_cast<char>(0x80 | (bits & 0x3f)); };
    if (code < 0x80) {
        out += static_cast<char>(code);
    } else if (code < 0x800) {
        out += static_cast<char>(0xc0 | code >> 6);
        tail(code);
    } else if (code < 0x10000) {
        out += static_cast<char>(0xe0 | code >> 12);
        tail(code >> 6);
        tail(code);
    } else {
        out += static_cast<char>(0xf0 | code >> 18);
        tail(code >> 12);
        tail(code >> 6);
        tail(code);
    }
}

}  // namespace

void JsonCursor::skip_space() {
    while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == '\t' ||
                                        text_[position_] == '\r' || text_[position_] == '\n')) {
        ++position_;
    }
}

tl::unexpected<Error> JsonCursor::wrong(std::string_view wanted) {
    skip_space();
    return wrong_at(column(), wanted);
}

tl::unexpected<Error> JsonCursor::wrong_at(size_t column, std::string_view wanted) const {
    if (column > text_.size()) return error("{}:{}: got the end of the line, wanted {}", where_, column, wanted);
    return error("{}:{}: got {}, wanted {}", where_, column, shown(text_.substr(column - 1)), wanted);
}

Status JsonCursor::punctuation(char c) {
    skip_space();
    if (!next_is(c)) return wrong(fmt::format("'{}'", c));
    ++position_;
    return {};
}

Status JsonCursor::end() {
    skip_space();
    if (position_ != text_.size()) return wrong("the end of the line");
    return {};
}

Result<std::string> JsonCursor::string() {
    skip_space();
    if (!next_is('"')) return wrong("a string");
    ++position_;
    std::string out;
    while (!next_is('"')) {
        if (position_ == text_.size() || static_cast<unsigned char>(text_[position_]) < 0x20) {
            return wrong_at(column(), "the '\"' that ends a string");
        }
        if (next_is('\\')) {
            RETURN_IF_ERROR(escape(out));
        } else {
            out += text_[position_++];
        }
    }
    ++position_;
    return out;
}

Status JsonCursor::escape(std::string& out) {
    constexpr std::string_view kLetters = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    const size_t begin = column();
    ++position_;
    if (next_is('u')) {
        ++position_;
        ASSIGN_OR_RETURN(uint32_t code, hex4());
        if (code >= 0xd800 && code < 0xdc00) {  // the first half of a surrogate pair
            if (text_.substr(position_, 2) != "\\u") return wrong_at(begin, "a pair of surrogates");
            position_ += 2;
            ASSIGN_OR_RETURN(const uint32_t low, hex4());
            if (low < 0xdc00 || low > 0xdfff) return wrong_at(begin, "a pair of surrogates");
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        } else if (code >= 0xdc00 && code <= 0xdfff) {
            return wrong_at(begin, "a pair of surrogates");
        }
        append_utf8(code, out);
        return {};
    }
    const size_t letter = position_ < text_.size() ? kLetters.find(text_[position_]) : std::string_view::npos;
    if (letter == std::string_view::npos) return wrong_at(begin, "an escape of JSON");
    out += kMeanings[letter];
    ++position_;
    return {};
}

Result<uint32_t> JsonCursor::hex4() {
    uint32_t value = 0;
    const std::string_view digits = text_.substr(position_, 4);
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (digits.size() != 4 || code != std::errc{} || end != digits.data() + 4)
        return wrong_at(column(), "four hexadecimal digits");
    position_ += 4;
    return value;
}

// The longest JSON number that begins here; consumes nothing on an error.
Result<std::string_view> JsonCursor::number_text() {
    skip_space();
    size_t end = position_;
    const auto digits = [&] {
        const size_t begin = end;
        while (end < text_.size() && is_digit(text_[end])) ++end;
        return end - begin;
    };
    if (next_is('-')) ++end;
    const size_t first = end;
    if (digits() == 0 || (text_[first] == '0' && end - first > 1)) return wrong("a number");
    if (end < text_.size() && text_[end] == '.') {
        ++end;
        if (digits() == 0) return wrong("a number");
    }
    if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
        ++end;
        if (end < text_.size() && (text_[end] == '+' || text_[end] == '-')) ++end;
        if (digits() == 0) return wrong("a number");
    }
    const std::string_view number = text_.substr(position_, end - position_);
    position_ = end;
    return number;
}

Result<int64_t> JsonCursor::integer(int64_t low, int64_t high) {
    const size_t begin = mark();
    ASSIGN_OR_RETURN(const std::string_view number, number_text());
    const auto value = parse_number<int64_t>(number);
    if (!value || *value < low || *value > high)
        return wrong_at(begin, fmt::format("a whole number from {} to {}", low, high));
    return *value;
}

Result<uint64_t> JsonCursor::unsigned_integer() {
    const size_t begin = mark();
    ASSIGN_OR_RETURN(const std::string_view number, number_text());
    const auto value = parse_number<uint64_t>(number);
    if (!value) return wrong_at(begin, "a whole number from 0 to 18446744073709551615");
    return *value;
}

Result<int64_t> JsonCursor::time(int64_t ns_per_unit, std::string_view unit) {
    constexpr int64_t kMaxNs = int64_t{1} << 60;
    const size_t begin = mark();
    ASSIGN_OR_RETURN(const std::string_view number, number_text());
    const auto value = parse_number<double>(number);
    const auto scale = static_cast<double>(ns_per_unit);
    if (!value || !(*value >= 0) || *value * scale > static_cast<double>(kMaxNs))
        return wrong_at(begin, fmt::format("{} from 0 to {}", unit, kMaxNs / ns_per_unit));
    return std::llround(*value * scale);
}

Status JsonCursor::skip() {
    skip_space();
    if (next_is('{')) return object([this](std::string_view) { return skip(); });
    if (next_is('[')) return array([this] { return skip(); });
    if (next_is('"')) {
        RETURN_IF_ERROR(string());
        return {};
    }
    for (const std::string_view word : {"true", "false", "null"}) {
        if (text_.substr(position_, word.size()) != word) continue;
        position_ += word.size();
        return {};
    }
    if (!number_text()) return wrong("a value");
    return {};
}

}  // namespace verbatim::traces
