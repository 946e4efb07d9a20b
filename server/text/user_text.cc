#include "server/text/user_text.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "server/text/utf8.h"

namespace verbatim::text {
namespace {

// The noncharacters of the Arabic presentation forms: valid in UTF-8, and never assigned.
constexpr char32_t kFirstStandIn = 0xFDD0;
constexpr char32_t kLastStandIn = 0xFDEF;

// Characters that templates seldom look for in users' texts come first.
int preference(char32_t c) {
    if (c == '|') return 0;
    if (c >= 0x80) return 1;
    const bool letter_or_digit = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (c <= ' ' || letter_or_digit) return 4;
    return c == '_' ? 3 : 2;
}

void each_text(const Json& value, const std::function<void(const std::string&)>& visit) {
    if (value.is_string()) visit(value.get_ref<const std::string&>());
    if (!value.is_structured()) return;
    for (const auto& [key, inner] : value.items()) {
        if (value.is_object()) visit(key);
        each_text(inner, visit);
    }
}

std::string utf8_of(char32_t character) {
    std::string text;
    append_utf8(text, character);
    return text;
}

// Puts characters in the place of others. Histories are long, and few characters of them are replaced.
class Replacement {
public:
    void add(char32_t from, char32_t to) {
        pairs_.push_back({utf8_of(from), utf8_of(to)});
        begins_[static_cast<unsigned char>(pairs_.back().from[0])] = true;
    }
    [[nodiscard]] std::string of(std::string_view text) const {
        std::string out;
        size_t done = 0;
        for (size_t at = 0; at < text.size(); ++at) {
            if (!begins_[static_cast<unsigned char>(text[at])]) continue;
            for (const Pair& pair : pairs_) {
                if (!text.substr(at).starts_with(pair.from)) continue;
                out.append(text, done, at - done);
                out += pair.to;
                done = at + pair.from.size();
                at = done - 1;
                break;
            }
        }
        return out.append(text, done);
    }

private:
    struct Pair {
        std::string from;
        std::string to;
    };
    std::vector<Pair> pairs_;
    std::array<bool, 256> begins_{};  // by first byte of a character that is replaced
};

Json replaced_inside(const Json& value, const Replacement& replacement) {
    if (value.is_string()) return replacement.of(value.get_ref<const std::string&>());
    if (!value.is_structured()) return value;
    Json out = value.is_object() ? Json::object() : Json::array();
    for (const auto& [key, inner] : value.items()) {
        if (value.is_object())
            out[replacement.of(key)] = replaced_inside(inner, replacement);
        else
            out.push_back(replaced_inside(inner, replacement));
    }
    return out;
}

// The pivots and stand-ins among the characters of the texts.
struct Used {
    std::set<char32_t> pivots;
    std::array<bool, kLastStandIn - kFirstStandIn + 1> stand_ins{};
};

Used used_in(const Json& value, const std::vector<char32_t>& pivots) {
    const std::string first = utf8_of(kFirstStandIn);
    const std::string begin = first.substr(0, 2);  // of all of them
    Used used;
    each_text(value, [&](const std::string& text) {
        for (const char32_t pivot : pivots) {
            if (!used.pivots.contains(pivot) && text.find(utf8_of(pivot)) != std::string::npos)
                used.pivots.insert(pivot);
        }
        for (size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1)) {
            const int place = static_cast<unsigned char>(text[at + 2]) - static_cast<unsigned char>(first[2]);
            if (place >= 0 && place < std::ssize(used.stand_ins)) used.stand_ins[static_cast<size_t>(place)] = true;
        }
    });
    return used;
}

}  // namespace

std::vector<char32_t> choose_pivots(const std::vector<std::string>& special_tokens) {
    std::vector<char32_t> pivots;
    for (const std::string& token : special_tokens) {
        std::optional<char32_t> best;
        bool has_one = false;
        for (size_t at = 0; at < token.size();) {
            const char32_t c = next_character(token, at);
            has_one = has_one || std::ranges::count(pivots, c) > 0;
            if (!best || preference(c) < preference(*best)) best = c;
        }
        if (!has_one && best) pivots.push_back(*best);
    }
    return pivots;
}

Result<std::vector<StandIn>> put_stand_ins(const std::vector<char32_t>& pivots, Json& value) {
    const Used used = used_in(value, pivots);
    std::vector<StandIn> stand_ins;
    Replacement replacement;
    char32_t next = kFirstStandIn;
    for (const char32_t pivot : pivots) {
        if (!used.pivots.contains(pivot)) continue;
        while (next <= kLastStandIn && used.stand_ins[next - kFirstStandIn]) ++next;
        if (next > kLastStandIn)
            return error("the messages use too many of the noncharacters U+FDD0 to U+FDEF, which text has no use for");
        stand_ins.push_back({pivot, next});
        replacement.add(pivot, next++);
    }
    if (!stand_ins.empty()) value = replaced_inside(value, replacement);
    return stand_ins;
}

std::string remove_stand_ins(std::string_view text, const std::vector<StandIn>& stand_ins) {
    Replacement replacement;
    for (const StandIn& one : stand_ins) replacement.add(one.stand_in, one.character);
    return replacement.of(text);
}

}  // namespace verbatim::text
