#include "server/text/regex_parts.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "engine/base/check.h"
#include "server/text/utf8.h"

namespace verbatim::text {
namespace {

constexpr int kMaxDepth = 32;
constexpr size_t kMaxPattern = 1 << 16;
constexpr int kMaxRepeat = 1000;

CodePointSet single(char32_t c) { return std::vector<CodePointRange>{{c, c}}; }

// What an escape stands for: one character, or a set.
struct Escape {
    std::optional<char32_t> character;
    CodePointSet set;
};

class Parser {
public:
    explicit Parser(std::string_view pattern) : pattern_(pattern) {}

    Result<RegexParts> parse() {
        if (pattern_.size() > kMaxPattern) return error("{} bytes of regex, {} at most", pattern_.size(), kMaxPattern);
        if (const auto bad = first_invalid_utf8(pattern_)) return error("byte {} is no UTF-8", *bad);
        RETURN_IF_ERROR(alternatives(/*depth=*/0, /*fold=*/false));
        if (at_ < pattern_.size()) return refused("an unopened )");
        return std::move(result_);
    }

    void add_set(const CodePointSet& set) {
        const auto found = std::ranges::find(result_.sets, set);
        result_.parts.push_back({static_cast<int>(found - result_.sets.begin()), ""});
        if (found == result_.sets.end()) result_.sets.push_back(set);
    }

    RegexParts take() { return std::move(result_); }

private:
    [[nodiscard]] bool at_end() const { return at_ >= pattern_.size(); }
    [[nodiscard]] char peek() const { return at_end() ? '\0' : pattern_[at_]; }
    bool accept(std::string_view text) {
        if (!pattern_.substr(at_).starts_with(text)) return false;
        at_ += text.size();
        return true;
    }
    [[nodiscard]] tl::unexpected<Error> refused(std::string_view what) const {
        return error("{} at byte {} is not supported", what, at_);
    }
    void add_text(std::string_view text) { result_.parts.push_back({-1, std::string(text)}); }

    Status alternatives(int depth, bool fold) {
        if (depth > kMaxDepth) return refused("nesting this deep");
        while (!at_end() && peek() != ')') {
            if (accept("|")) {
                add_text("|");
                continue;
            }
            RETURN_IF_ERROR(item(depth, fold));
        }
        return {};
    }

    // One thing and how often.
    Status item(int depth, bool fold) {
        const char c = peek();
        if (c == '*' || c == '+' || c == '?' || c == '{') return refused("a repetition of nothing");
        if (c == '^' || c == '$') return refused(fmt::format("the anchor {}", c));
        const bool look_ahead = pattern_.substr(at_).starts_with("(?=") || pattern_.substr(at_).starts_with("(?!");
        if (accept("(")) {
            RETURN_IF_ERROR(group(depth, fold));
        } else if (accept("[")) {
            ASSIGN_OR_RETURN(const CodePointSet set, bracket(fold));
            add_set(set);
        } else if (accept(".")) {
            add_set(single('\n').complement());
        } else if (c == '\\') {
            ASSIGN_OR_RETURN(const Escape escape, read_escape());
            RETURN_IF_ERROR(escape.character ? literal(*escape.character, fold) : (add_set(escape.set), Status()));
        } else {
            RETURN_IF_ERROR(literal(next_character(pattern_, at_), fold));
        }
        return repetition(look_ahead);
    }

    Status literal(char32_t c, bool fold) {
        if (fold && c >= 0x80) return refused("a character beyond ASCII whose case is ignored");
        add_set(fold ? ascii_case_folded(c) : single(c));
        return {};
    }

    Status group(int depth, bool fold) {
        const bool folds_more = accept("?i:");
        if (folds_more || accept("?:")) {
            fold = fold || folds_more;
            add_text("(?:");
        } else if (accept("?=")) {
            add_text("(?=");
        } else if (accept("?!")) {
            add_text("(?!");
        } else if (accept("?>")) {
            add_text("(?>");
        } else if (peek() == '?') {
            return refused(fmt::format("the group ({}", pattern_.substr(at_, 3)));
        } else {
            add_text("(?:");
        }
        RETURN_IF_ERROR(alternatives(depth + 1, fold));
        if (!accept(")")) return refused("a group without its end");
        add_text(")");
        return {};
    }

    Status repetition(bool look_ahead) {
        const char c = peek();
        if (c != '*' && c != '+' && c != '?' && c != '{') return {};
        if (look_ahead) return refused("a repeated look-ahead");
        const bool counted = c == '{';
        if (counted) {
            RETURN_IF_ERROR(count());
        } else {
            ++at_;
            add_text(std::string(1, c));
        }
        if (accept("?")) add_text("?");
        if (peek() == '+' && counted) return refused("{n,m}+");  // possessive for some, repeated for others
        if (accept("+")) add_text("+");
        if (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{')
            return refused("a repetition of a repetition");
        return {};
    }

    // {n} {n,} {n,m}
    Status count() {
        const size_t end = pattern_.find('}', at_);
        if (end == std::string_view::npos) return refused("{ without }");
        const std::string_view inside = pattern_.substr(at_ + 1, end - at_ - 1);
        const size_t comma = inside.find(',');
        const auto low = number(inside.substr(0, comma));
        const bool open = comma != std::string_view::npos && comma + 1 == inside.size();
        const auto high = comma == std::string_view::npos || open ? low : number(inside.substr(comma + 1));
        if (!low || !high || *low > *high) return refused(fmt::format("{{{}}}", inside));
        add_text(open ? fmt::format("{{{},}}", *low) : fmt::format("{{{},{}}}", *low, *high));
        at_ = end + 1;
        return {};
    }

    static std::optional<int> number(std::string_view digits) {
        int value = 0;
        for (const char c : digits) {
            if (c < '0' || c > '9') return std::nullopt;
            value = value * 10 + (c - '0');
            if (value > kMaxRepeat) return std::nullopt;
        }
        if (digits.empty()) return std::nullopt;
        return value;
    }

    // Behind [.
    Result<CodePointSet> bracket(bool fold) {
        const bool negated = accept("^");
        std::vector<CodePointRange> ranges;
        bool any = false;
        while (!accept("]")) {
            if (at_end()) return refused("[ without ]");
            RETURN_IF_ERROR(member(ranges, fold));
            any = true;
        }
        if (!any) return refused("an empty class");
        const CodePointSet set(std::move(ranges));
        return negated ? set.complement() : set;
    }

    // A character, a range, or a set inside [].
    Status member(std::vector<CodePointRange>& ranges, bool fold) {
        if (peek() == '[') return refused("a class within a class");
        if (pattern_.substr(at_).starts_with("&&")) return refused("&& within a class");
        ASSIGN_OR_RETURN(const Escape first, member_end());
        if (!first.character) {
            ranges.insert(ranges.end(), first.set.ranges().begin(), first.set.ranges().end());
            return {};
        }
        char32_t last = *first.character;
        const bool range = peek() == '-' && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']';
        if (range) {
            ++at_;
            ASSIGN_OR_RETURN(const Escape end, member_end());
            if (!end.character || *end.character < last) return refused("a range that ends before it begins");
            last = *end.character;
        }
        const CodePointSet letters(std::vector<CodePointRange>{{'A', 'Z'}, {'a', 'z'}});
        if (fold && (range || last >= 0x80 || letters.contains(last)))
            return refused("a class of letters whose case is ignored");
        ranges.push_back({*first.character, last});
        return {};
    }

    Result<Escape> member_end() {
        if (at_end()) return refused("[ without ]");
        if (peek() == '\\') return read_escape();
        return Escape{next_character(pattern_, at_), {}};
    }

    Result<Escape> read_escape() {
        const size_t begin = at_++;
        const char c = peek();
        const auto character = [&](char32_t value) { return ++at_, Escape{value, {}}; };
        const auto set = [&](CodePointSet value) { return ++at_, Escape{std::nullopt, std::move(value)}; };
        switch (c) {
            case 'r': return character('\r');
            case 'n': return character('\n');
            case 't': return character('\t');
            case 'f': return character('\f');
            case 'v': return character('\v');
            case 's': return set(white_space());
            case 'S': return set(white_space().complement());
            case 'd': return set(*general_category("Nd"));
            case 'D': return set(general_category("Nd")->complement());
            case 'x': return ++at_, hexadecimal(accept("{") ? 0 : 2);
            case 'u': return ++at_, hexadecimal(4);
            case 'p':
            case 'P': return ++at_, property(c == 'P');
            default: break;
        }
        const bool punctuation =
            c > ' ' && c < 0x7f && !(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z');
        if (punctuation || c == ' ') return character(static_cast<char32_t>(c));
        at_ = begin;
        return refused(c == '\0' ? std::string("a lone \\") : fmt::format("the escape \\{}", c));
    }

    // Exactly `num_digits`, or with 0 up to a }.
    Result<Escape> hexadecimal(int num_digits) {
        uint32_t value = 0;
        int count = 0;
        for (; !at_end() && (num_digits == 0 || count < num_digits); ++count, ++at_) {
            const auto digit = std::string_view("0123456789abcdef").find(static_cast<char>(peek() | 0x20));
            if (digit == std::string_view::npos || value > kLastCodePoint) break;
            value = value * 16 + static_cast<uint32_t>(digit);
        }
        const bool whole = num_digits == 0 ? count > 0 && accept("}") : count == num_digits;
        if (!whole || value > kLastCodePoint) return refused("an escape that is no character");
        return Escape{value, {}};
    }

    Result<Escape> property(bool negated) {
        const size_t end = pattern_.find('}', at_);
        if (!accept("{") || end == std::string_view::npos) return refused("\\p without {..}");
        if (accept("^")) negated = !negated;
        const std::string_view name = pattern_.substr(at_, end - at_);
        const auto set = general_category(name);
        if (!set) return refused(fmt::format("the property {:?}", name));
        at_ = end + 1;
        return Escape{std::nullopt, negated ? set->complement() : *set};
    }

    std::string_view pattern_;
    size_t at_ = 0;
    RegexParts result_;
};

}  // namespace

Result<RegexParts> parse_regex(std::string_view pattern) { return Parser(pattern).parse(); }

RegexParts literal_regex(std::string_view text) {
    Parser parser("");
    for (size_t at = 0; at < text.size();) parser.add_set(single(next_character(text, at)));
    return parser.take();
}

}  // namespace verbatim::text
