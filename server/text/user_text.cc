#include "server/text/user_text.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>

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

std::string replaced(std::string_view text, const std::function<char32_t(char32_t)>& by) {
    std::string out;
    for (size_t at = 0; at < text.size();) append_utf8(out, by(next_character(text, at)));
    return out;
}

Json replaced_inside(const Json& value, const std::function<char32_t(char32_t)>& by) {
    if (value.is_string()) return replaced(value.get_ref<const std::string&>(), by);
    if (!value.is_structured()) return value;
    Json out = value.is_object() ? Json::object() : Json::array();
    for (const auto& [key, inner] : value.items()) {
        if (value.is_object())
            out[replaced(key, by)] = replaced_inside(inner, by);
        else
            out.push_back(replaced_inside(inner, by));
    }
    return out;
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
    std::set<char32_t> used;
    each_text(value, [&](const std::string& text) {
        for (size_t at = 0; at < text.size();) used.insert(next_character(text, at));
    });
    std::vector<StandIn> stand_ins;
    char32_t next = kFirstStandIn;
    for (const char32_t pivot : pivots) {
        if (!used.contains(pivot)) continue;
        while (next <= kLastStandIn && used.contains(next)) ++next;
        if (next > kLastStandIn)
            return error("the messages use too many of the noncharacters U+FDD0 to U+FDEF, which text has no use for");
        stand_ins.push_back({pivot, next++});
    }
    if (stand_ins.empty()) return stand_ins;
    value = replaced_inside(value, [&](char32_t c) {
        const auto found = std::ranges::find(stand_ins, c, &StandIn::character);
        return found == stand_ins.end() ? c : found->stand_in;
    });
    return stand_ins;
}

std::string remove_stand_ins(std::string_view text, const std::vector<StandIn>& stand_ins) {
    if (stand_ins.empty()) return std::string(text);
    return replaced(text, [&](char32_t c) {
        const auto found = std::ranges::find(stand_ins, c, &StandIn::stand_in);
        return found == stand_ins.end() ? c : found->character;
    });
}

}  // namespace verbatim::text
