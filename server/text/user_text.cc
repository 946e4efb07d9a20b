#include "server/text/user_text.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <optional>
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

std::string utf8_of(char32_t character) {
    std::string text;
    append_utf8(text, character);
    return text;
}

// Three bytes are each of them in UTF-8, of which two are the same.
std::string begin_of_stand_ins() { return utf8_of(kFirstStandIn).substr(0, 2); }

// Marks the characters that stand for others, and that the text has already.
using StandIns = std::array<bool, kLastStandIn - kFirstStandIn + 1>;
void mark_stand_ins(std::string_view text, StandIns& used) {
    const std::string first = utf8_of(kFirstStandIn);
    const std::string begin = begin_of_stand_ins();
    for (size_t at = text.find(begin); at != std::string_view::npos; at = text.find(begin, at + 1)) {
        if (at + 2 >= text.size()) break;
        const int place = static_cast<unsigned char>(text[at + 2]) - static_cast<unsigned char>(first[2]);
        if (place >= 0 && place < std::ssize(used)) used[static_cast<size_t>(place)] = true;
    }
}

// A character as JSON writes it inside of a text.
std::string json_of(char32_t character) {
    const std::string quoted = Json(utf8_of(character)).dump();
    return quoted.substr(1, quoted.size() - 2);
}

// Goes through the texts of a written JSON value, and puts stand-ins in the place of pivots. What is escaped there is
// taken as a whole: a pivot `n` is no part of `\n`.
class PivotReplacement {
public:
    PivotReplacement(const std::vector<char32_t>& pivots, const StandIns& used) : used_(used) {
        for (const char32_t pivot : pivots) {
            pivots_.push_back({pivot, json_of(pivot), ""});
            stops_[static_cast<unsigned char>(pivots_.back().written[0])] = true;
        }
        stops_['"'] = stops_['\\'] = true;
    }
    // False: no stand-in is left.
    bool run(std::string& json) {
        const std::string_view text = json;
        std::string out;
        out.reserve(text.size() + text.size() / 8);
        size_t done = 0;
        bool in_text = false;
        for (size_t at = 0; at < text.size();) {
            if (!in_text) {
                in_text = text[at++] == '"';
                continue;
            }
            while (at < text.size() && !stops_[static_cast<unsigned char>(text[at])]) ++at;
            if (at == text.size()) break;
            const size_t size = size_of_one(text, at);
            if (Pivot* pivot = find(text.substr(at), size)) {
                if (pivot->stand_in.empty() && !choose(*pivot)) return false;
                out.append(text, done, at - done);
                out += pivot->stand_in;
                done = at += pivot->written.size();
                continue;
            }
            in_text = text[at] != '"';
            at += size;
        }
        if (done > 0) json = out.append(text, done);
        return true;
    }
    [[nodiscard]] const std::vector<StandIn>& stand_ins() const { return stand_ins_; }

private:
    struct Pivot {
        char32_t character = 0;
        std::string written;
        std::string stand_in;  // empty: none is needed so far
    };
    // Bytes of an escape, or one.
    static size_t size_of_one(std::string_view text, size_t at) {
        if (text[at] != '\\') return 1;
        return text.substr(at).starts_with("\\u") ? 6 : 2;
    }
    // An escape is a pivot's as a whole or not at all.
    Pivot* find(std::string_view text, size_t size) {
        const auto is_here = [&](const Pivot& pivot) {
            return text.starts_with(pivot.written) && (text[0] != '\\' || pivot.written.size() == size);
        };
        const auto found = std::ranges::find_if(pivots_, is_here);
        return found == pivots_.end() ? nullptr : &*found;
    }
    bool choose(Pivot& pivot) {
        while (next_ < used_.size() && used_[next_]) ++next_;
        if (next_ == used_.size()) return false;
        const auto stand_in = static_cast<char32_t>(kFirstStandIn + next_++);
        stand_ins_.push_back({pivot.character, stand_in});
        pivot.stand_in = utf8_of(stand_in);
        return true;
    }

    std::vector<Pivot> pivots_;
    StandIns used_;
    size_t next_ = 0;
    std::array<bool, 256> stops_{};  // first bytes of what is not passed over in texts
    std::vector<StandIn> stand_ins_;
};

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

Result<std::vector<StandIn>> put_stand_ins(const std::vector<char32_t>& pivots, std::span<std::string* const> jsons) {
    StandIns used{};
    for (const std::string* json : jsons) mark_stand_ins(*json, used);
    PivotReplacement replacement(pivots, used);
    for (std::string* json : jsons) {
        if (!replacement.run(*json))
            return error("the messages use too many of the noncharacters U+FDD0 to U+FDEF, which text has no use for");
    }
    return replacement.stand_ins();
}

Result<std::vector<StandIn>> put_stand_ins(const std::vector<char32_t>& pivots, std::string& json) {
    return put_stand_ins(pivots, std::array{&json});
}

std::string remove_stand_ins(std::string_view text, const std::vector<StandIn>& stand_ins) {
    if (stand_ins.empty()) return std::string(text);
    const std::string begin = begin_of_stand_ins();
    std::string out;
    out.reserve(text.size());
    size_t done = 0;
    for (size_t at = text.find(begin); at != std::string_view::npos; at = text.find(begin, at + 1)) {
        size_t end = at;
        const char32_t character = next_character(text, end);
        const auto found = std::ranges::find(stand_ins, character, &StandIn::stand_in);
        if (found == stand_ins.end()) continue;
        out.append(text, done, at - done);
        append_utf8(out, found->character);
        done = end;
    }
    return out.append(text, done);
}

}  // namespace verbatim::text
