#include "kernels/sandbox/asm_macros.h"

#include <fmt/format.h>

#include <algorithm>
#include <regex>

#include "kernels/sandbox/cuda_source.h"
#include "kernels/sandbox/inline_ptx.h"

namespace verbatim::sandbox {
namespace {

// A directive's lines, up to its last character.
struct Directive {
    size_t begin, end;
    std::string defines;  // a macro's name, or nothing
};

std::vector<Directive> directives_of(const std::string& code) {
    std::vector<Directive> directives;
    for (size_t begin = 0; begin < code.size();) {
        const auto end_of_line = [&](size_t from) { return std::min(code.find('\n', from), code.size()); };
        size_t end = end_of_line(begin);
        const size_t hash = code.find_first_not_of(" \t", begin);
        if (hash < end && code[hash] == '#') {
            while (end < code.size() && code[end - 1] == '\\') end = end_of_line(end + 1);
            static const std::regex kDefine(R"(^\s*#\s*define\s+(\w+))");
            std::smatch found;
            constexpr size_t kLongest = 4096;  // longer than a pattern is matched against
            const std::string head = code.substr(begin, std::min(end - begin, kLongest));
            directives.push_back({begin, end, std::regex_search(head, found, kDefine) ? found.str(1) : ""});
        }
        begin = end + 1;
    }
    return directives;
}

// Calls for each name between two places.
template <typename Call>
void each_name(const std::string& code, size_t begin, size_t end, const Call& call) {
    for (size_t i = begin; i < end; ++i) {
        if (!is_of_a_name(code[i])) continue;
        const size_t first = i;
        while (i < end && is_of_a_name(code[i])) ++i;
        call(first, i);
    }
}

// The place behind a use of a macro: behind its arguments, if there are any.
size_t behind_use(const std::string& code, size_t name_end) {
    const size_t open = code.find_first_not_of(" \t\r\n", name_end);
    if (open == std::string::npos || code[open] != '(') return name_end;
    const size_t close = behind_bracket(code, open);
    return close == std::string::npos ? name_end : close;
}

std::string begin_mark(size_t number) { return fmt::format(" verbatim_expands_{}_ ", number); }
std::string end_mark(size_t number) { return fmt::format(" verbatim_expanded_{}_ ", number); }

// Between the marks of a number; nothing if they are not there.
std::string_view between_marks(std::string_view text, size_t number) {
    const std::string first = begin_mark(number).substr(1, begin_mark(number).size() - 2);
    const std::string last = end_mark(number).substr(1, end_mark(number).size() - 2);
    const size_t begin = text.find(first);
    const size_t end = begin == std::string_view::npos ? begin : text.find(last, begin);
    if (end == std::string_view::npos) return {};
    return text.substr(begin + first.size(), end - begin - first.size());
}

std::string in_one_line(std::string_view expansion) {
    static const std::regex kBranchMark(R"(verbatim_branch_\d+_\d+_)");
    std::string line = std::regex_replace(std::string(expansion), kBranchMark, "");
    std::ranges::replace(line, '\n', ' ');
    return line;
}

}  // namespace

std::set<std::string> macros_with_asm(const std::vector<std::string_view>& texts) {
    std::set<std::string> macros;
    size_t num_before = 0;
    do {
        num_before = macros.size();
        for (const std::string_view text : texts) {
            const std::string code = code_of(text);
            const std::vector<AsmPlace> places = asms_of(code);
            for (const Directive& one : directives_of(code)) {
                if (one.defines.empty()) continue;
                const bool has_asm = std::ranges::any_of(places, [&](const AsmPlace& place) {
                    return !place.is_plain && place.begin > one.begin && place.end <= one.end;
                });
                if (has_asm) macros.insert(one.defines);
                each_name(code, one.begin, one.end, [&](size_t begin, size_t end) {
                    if (macros.contains(code.substr(begin, end - begin))) macros.insert(one.defines);
                });
            }
        }
    } while (macros.size() > num_before);
    return macros;
}

std::string with_expansion_marks(std::string_view text, const std::set<std::string>& macros, size_t& num_marked) {
    const std::string code = code_of(text);
    std::vector<AsmPlace> spots;
    size_t at = 0;
    const auto add_between = [&](size_t end) {
        each_name(code, at, end, [&](size_t begin, size_t name_end) {
            if (macros.contains(code.substr(begin, name_end - begin)))
                spots.push_back({begin, behind_use(code, name_end), false});
        });
    };
    const std::vector<Directive> directives = directives_of(code);
    for (const Directive& one : directives) {
        add_between(one.begin);
        at = one.end;
    }
    add_between(code.size());
    for (const AsmPlace& place : asms_of(code)) {
        const auto has = [&](const Directive& one) { return place.begin >= one.begin && place.begin < one.end; };
        const bool is_whole = place.end != std::string::npos;
        if (is_whole && !place.is_plain && std::ranges::none_of(directives, has)) spots.push_back(place);
    }
    std::ranges::sort(spots, {}, &AsmPlace::begin);
    std::string marked;
    size_t done = 0;
    for (const AsmPlace& spot : spots) {
        if (spot.begin < done) continue;  // in one that is expanded
        marked += text.substr(done, spot.begin - done);
        marked += begin_mark(num_marked) + std::string(text.substr(spot.begin, spot.end - spot.begin));
        marked += end_mark(num_marked++);
        done = spot.end;
    }
    return marked + std::string(text.substr(done));
}

std::string with_expansions(std::string_view marked, const std::set<std::string>& macros,
                            std::string_view preprocessed) {
    std::string text(marked);
    const std::vector<Directive> directives = directives_of(code_of(marked));
    for (auto one = directives.rbegin(); one != directives.rend(); ++one) {
        if (!macros.contains(one->defines)) continue;
        const std::string whole = text.substr(one->begin, one->end - one->begin);
        text.replace(one->begin, whole.size(), static_cast<size_t>(std::ranges::count(whole, '\n')), '\n');
    }
    static const std::regex kMark(R"( verbatim_expands_(\d+)_ )");
    for (std::smatch found; std::regex_search(text, found, kMark);) {
        const size_t number = std::stoul(found.str(1));
        const auto begin = static_cast<size_t>(found.position());
        const size_t end = text.find(end_mark(number), begin);
        const std::string lines(static_cast<size_t>(std::count(text.begin() + static_cast<int64_t>(begin),
                                                               text.begin() + static_cast<int64_t>(end), '\n')),
                                '\n');
        text.replace(begin, end + end_mark(number).size() - begin,
                     in_one_line(between_marks(preprocessed, number)) + lines);
    }
    return text;
}

}  // namespace verbatim::sandbox
