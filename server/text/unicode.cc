#include "server/text/unicode.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>

#include "engine/base/check.h"
#include "server/text/unicode_tables.h"

namespace verbatim::text {
namespace {

struct CategoryRun {
    std::string_view category;
    CodePointRange range;
};

std::vector<CategoryRun> read_category_runs() {
    std::vector<CategoryRun> runs;
    std::string_view rest = kGeneralCategoryRuns;
    char32_t next = 0;
    while (!rest.empty()) {
        uint32_t length = 0;
        const auto [end, problem] = std::from_chars(rest.data() + 2, rest.data() + rest.size(), length);
        CHECK(problem == std::errc() && length > 0);
        runs.push_back({rest.substr(0, 2), {next, next + length - 1}});
        next += length;
        rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    }
    CHECK_EQ(static_cast<uint32_t>(next), static_cast<uint32_t>(kLastCodePoint + 1));
    return runs;
}

}  // namespace

CodePointSet::CodePointSet(std::vector<CodePointRange> ranges) {
    std::ranges::sort(ranges, {}, &CodePointRange::first);
    for (const CodePointRange& range : ranges) {
        CHECK(range.first <= range.last && range.last <= kLastCodePoint);
        if (!ranges_.empty() && range.first <= ranges_.back().last + 1)
            ranges_.back().last = std::max(ranges_.back().last, range.last);
        else
            ranges_.push_back(range);
    }
}

bool CodePointSet::contains(char32_t code_point) const {
    const auto after = std::ranges::upper_bound(ranges_, code_point, {}, &CodePointRange::first);
    return after != ranges_.begin() && std::prev(after)->last >= code_point;
}

CodePointSet CodePointSet::complement() const {
    std::vector<CodePointRange> outside;
    char32_t next = 0;
    for (const CodePointRange& range : ranges_) {
        if (range.first > next) outside.push_back({next, range.first - 1});
        next = range.last + 1;
    }
    if (next <= kLastCodePoint) outside.push_back({next, kLastCodePoint});
    return outside;
}

CodePointSet CodePointSet::united(const CodePointSet& other) const {
    std::vector<CodePointRange> both = ranges_;
    both.insert(both.end(), other.ranges_.begin(), other.ranges_.end());
    return both;
}

std::optional<CodePointSet> general_category(std::string_view name) {
    static const std::vector<CategoryRun> kRuns = read_category_runs();
    std::vector<CodePointRange> ranges;
    for (const CategoryRun& run : kRuns) {
        if (!name.empty() && run.category.starts_with(name)) ranges.push_back(run.range);
    }
    if (ranges.empty()) return std::nullopt;
    return ranges;
}

const CodePointSet& white_space() {
    static const CodePointSet kSet({{0x09, 0x0D},
                                    {0x20, 0x20},
                                    {0x85, 0x85},
                                    {0xA0, 0xA0},
                                    {0x1680, 0x1680},
                                    {0x2000, 0x200A},
                                    {0x2028, 0x2029},
                                    {0x202F, 0x202F},
                                    {0x205F, 0x205F},
                                    {0x3000, 0x3000}});
    return kSet;
}

CodePointSet ascii_case_folded(char32_t code_point) {
    constexpr char32_t kLongS = 0x17F;
    constexpr char32_t kKelvin = 0x212A;
    const char32_t lower = code_point >= 'A' && code_point <= 'Z' ? code_point + 0x20 : code_point;
    if (lower < 'a' || lower > 'z') return std::vector<CodePointRange>{{code_point, code_point}};
    std::vector<CodePointRange> alike = {{lower, lower}, {lower - 0x20, lower - 0x20}};
    if (lower == 's') alike.push_back({kLongS, kLongS});
    if (lower == 'k') alike.push_back({kKelvin, kKelvin});
    return alike;
}

}  // namespace verbatim::text
