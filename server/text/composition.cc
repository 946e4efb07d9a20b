#include "server/text/composition.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "engine/base/check.h"
#include "server/text/unicode.h"
#include "server/text/unicode_tables.h"
#include "server/text/utf8.h"

namespace verbatim::text {
namespace {

// Hangul syllables, Unicode 16.0 chapter 3.12.
constexpr char32_t kSyllableBase = 0xAC00, kLeadBase = 0x1100, kVowelBase = 0x1161, kTailBase = 0x11A7;
constexpr char32_t kNumLeads = 19, kNumVowels = 21, kNumTails = 28, kNumSyllables = kNumLeads * kNumVowels * kNumTails;

bool is_syllable(char32_t c) { return c >= kSyllableBase && c < kSyllableBase + kNumSyllables; }

struct Decomposition {
    char32_t first = 0;
    char32_t second = 0;  // 0: none
};

uint64_t pair_key(char32_t first, char32_t second) { return static_cast<uint64_t>(first) << 32 | second; }

// A number in base `base` at the front of `rest`, and the one character behind it, both taken away.
std::pair<char32_t, char> take_number(std::string_view& rest, int base) {
    uint32_t value = 0;
    const auto [end, problem] = std::from_chars(rest.data(), rest.data() + rest.size(), value, base);
    CHECK(problem == std::errc() && end != rest.data() + rest.size());
    const char behind = *end;
    rest.remove_prefix(static_cast<size_t>(end - rest.data()) + 1);
    return {value, behind};
}

struct Tables {
    std::unordered_map<char32_t, uint8_t> combining_class;
    std::unordered_map<char32_t, Decomposition> decomposition;
    std::unordered_map<uint64_t, char32_t> composed;  // by pair_key
    CodePointSet unstable;  // may change, or change what is before them; the others only end what changes
    char32_t first_unstable = 0;
};

void read_combining_classes(Tables& tables, std::vector<CodePointRange>& unstable) {
    for (std::string_view rest = kCombiningClassRuns; !rest.empty();) {
        const char32_t first = take_number(rest, 16).first;
        const char32_t last = take_number(rest, 16).first;
        const auto value = static_cast<uint8_t>(take_number(rest, 10).first);
        for (char32_t c = first; c <= last; ++c) tables.combining_class[c] = value;
        unstable.push_back({first, last});
    }
}

void read_decompositions(Tables& tables, std::vector<CodePointRange>& unstable) {
    for (std::string_view rest = kDecompositions; !rest.empty();) {
        const auto [whole, sign] = take_number(rest, 16);
        const auto [first, behind] = take_number(rest, 16);
        const char32_t second = behind == '+' ? take_number(rest, 16).first : 0;
        tables.decomposition[whole] = {first, second};
        if (sign == '=')
            tables.composed[pair_key(first, second)] = whole;
        else
            unstable.push_back({whole, whole});
        if (second != 0) unstable.push_back({second, second});
    }
}

Tables make_tables() {
    Tables tables;
    std::vector<CodePointRange> unstable = {{kVowelBase, kVowelBase + kNumVowels - 1},
                                            {kTailBase + 1, kTailBase + kNumTails - 1}};
    read_combining_classes(tables, unstable);
    read_decompositions(tables, unstable);
    tables.unstable = unstable;
    tables.first_unstable = tables.unstable.ranges().front().first;
    return tables;
}

const Tables& tables() {
    static const Tables kTables = make_tables();
    return kTables;
}

uint8_t combining_class(char32_t c) {
    const auto found = tables().combining_class.find(c);
    return found == tables().combining_class.end() ? 0 : found->second;
}

void append_decomposed(std::u32string& to, char32_t c) {
    if (is_syllable(c)) {
        const char32_t index = c - kSyllableBase;
        to += char32_t{kLeadBase + index / (kNumVowels * kNumTails)};
        to += kVowelBase + index / kNumTails % kNumVowels;
        if (index % kNumTails != 0) to += kTailBase + index % kNumTails;
        return;
    }
    const auto found = tables().decomposition.find(c);
    if (found == tables().decomposition.end()) {
        to += c;
        return;
    }
    append_decomposed(to, found->second.first);
    if (found->second.second != 0) append_decomposed(to, found->second.second);
}

// Canonical order: between characters of class 0, by class, those of one class as they stood.
void order_marks(std::u32string& text) {
    for (size_t begin = 0; begin < text.size();) {
        if (combining_class(text[begin]) == 0) {
            ++begin;
            continue;
        }
        size_t end = begin;
        while (end < text.size() && combining_class(text[end]) != 0) ++end;
        const auto at = [&](size_t i) { return text.begin() + static_cast<std::ptrdiff_t>(i); };
        std::ranges::stable_sort(at(begin), at(end), {}, combining_class);
        begin = end;
    }
}

// The character that both make, or 0.
char32_t compose(char32_t first, char32_t second) {
    if (first >= kLeadBase && first < kLeadBase + kNumLeads && second >= kVowelBase &&
        second < kVowelBase + kNumVowels) {
        return kSyllableBase + ((first - kLeadBase) * kNumVowels + (second - kVowelBase)) * kNumTails;
    }
    if (is_syllable(first) && (first - kSyllableBase) % kNumTails == 0 && second > kTailBase &&
        second < kTailBase + kNumTails) {
        return first + (second - kTailBase);
    }
    const auto found = tables().composed.find(pair_key(first, second));
    return found == tables().composed.end() ? 0 : found->second;
}

// A mark goes into the last character of class 0 when nothing between them has its class or a higher one.
std::u32string composed_text(const std::u32string& text) {
    std::u32string out;
    size_t starter = std::u32string::npos;
    for (const char32_t c : text) {
        const uint8_t value = combining_class(c);
        if (starter != std::u32string::npos) {
            const bool blocked = out.size() - 1 > starter && combining_class(out.back()) >= value;
            const char32_t whole = blocked ? 0 : compose(out[starter], c);
            if (whole != 0) {
                out[starter] = whole;
                continue;
            }
        }
        if (value == 0) starter = out.size();
        out += c;
    }
    return out;
}

bool is_unstable(char32_t c) { return c >= tables().first_unstable && tables().unstable.contains(c); }

void append_nfc(std::string& to, std::string_view text) {
    std::u32string decomposed;
    for (size_t at = 0; at < text.size();) append_decomposed(decomposed, next_character(text, at));
    order_marks(decomposed);
    for (const char32_t c : composed_text(decomposed)) append_utf8(to, c);
}

// Where the stable character at or behind `at` begins.
size_t next_stable(std::string_view text, size_t at) {
    while (at < text.size()) {
        const size_t begin = at;
        if (!is_unstable(next_character(text, at))) return begin;
    }
    return text.size();
}

}  // namespace

std::string nfc(std::string_view text) {
    std::string out;
    size_t done = 0;         // what is before it is in `out`
    size_t last_stable = 0;  // what may take up the next unstable character
    for (size_t at = 0; at < text.size();) {
        const size_t begin = at;
        if (!is_unstable(next_character(text, at))) {
            last_stable = begin;
            continue;
        }
        at = next_stable(text, at);
        out += text.substr(done, last_stable - done);
        append_nfc(out, text.substr(last_stable, at - last_stable));
        done = last_stable = at;
    }
    out += text.substr(done);
    return out;
}

}  // namespace verbatim::text
