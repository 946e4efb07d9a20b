#include "tests/house/missing_includes.h"

#include <fmt/format.h>

#include <algorithm>
#include <regex>

namespace verbatim::house {
namespace {

using Names = std::set<std::string>;

// Which header a name of namespace std comes from; names that come from several are left out.
const std::map<std::string, std::string>& standard_headers() {
    static const std::map<std::string, std::vector<std::string>> kNames = {
        {"algorithm", {"any_of", "all_of", "copy", "fill", "fill_n", "find_if", "lower_bound", "max_element", "sort"}},
        {"array", {"array"}},
        {"atomic", {"atomic"}},
        {"bit", {"bit_cast", "countl_zero", "countr_zero", "popcount"}},
        {"charconv", {"from_chars", "to_chars"}},
        {"chrono", {"chrono"}},
        {"cmath", {"isfinite", "isnan", "nextafter", "sqrt"}},
        {"condition_variable", {"condition_variable"}},
        {"cstdlib", {"getenv", "strtoull"}},
        {"cstring", {"memcmp", "memcpy", "strerror"}},
        {"deque", {"deque"}},
        {"filesystem", {"filesystem"}},
        {"fstream", {"ifstream", "ofstream"}},
        {"functional", {"function"}},
        {"limits", {"numeric_limits"}},
        {"map", {"map", "multimap"}},
        {"memory", {"make_shared", "make_unique", "shared_ptr", "unique_ptr"}},
        {"mutex", {"lock_guard", "mutex", "unique_lock"}},
        {"numeric", {"accumulate", "gcd", "iota"}},
        {"optional", {"nullopt", "optional"}},
        {"regex", {"regex", "regex_search", "smatch"}},
        {"set", {"set"}},
        {"span", {"span"}},
        {"sstream", {"istringstream", "ostringstream"}},
        {"string", {"string", "to_string"}},
        {"string_view", {"string_view"}},
        {"thread", {"thread"}},
        {"unordered_map", {"unordered_map"}},
        {"utility", {"exchange"}},
        {"variant", {"variant"}},
        {"vector", {"vector"}},
    };
    static const std::map<std::string, std::string> kHeaders = [] {
        std::map<std::string, std::string> headers;
        for (const auto& [header, names] : kNames) {
            for (const std::string& name : names) headers[name] = header;
        }
        return headers;
    }();
    return kHeaders;
}

std::vector<std::string> included(const std::string& text) {
    static const std::regex kInclude(R"(^\s*#\s*include\s*[<"]([^>"]+)[>"])");
    std::vector<std::string> names;
    for (const std::string& line : split_lines(blank_comments(text, /*keep_strings=*/true))) {
        std::smatch match;
        if (line.find('#') != std::string::npos && std::regex_search(line, match, kInclude)) names.push_back(match[1]);
    }
    return names;
}

// Code without comments, strings and preprocessor lines.
std::string code_of(const SourceFile& file) {
    std::string code;
    for (const std::string& line : split_lines(blank_comments(file.text, /*keep_strings=*/false))) {
        if (!line.starts_with("#")) code += line;
        code += '\n';
    }
    return code;
}

// The namespaces that a file opens: "verbatim", "verbatim::cpu".
Names spaces_of(const std::string& code) {
    static const std::regex kSpace(R"(\bnamespace\s+([\w:]+)\s*\{)");
    Names spaces;
    for (std::sregex_iterator at(code.begin(), code.end(), kSpace), end; at != end; ++at) spaces.insert((*at)[1]);
    return spaces;
}

// Names that the file itself gives to a type, an alias, a template's parameter or a test suite.
Names own_names(const std::string& code) {
    static const std::regex kOwn(R"(\b(?:struct|class|enum|union|using|typename|\w*TEST\w*|RC_\w+)\b[\s(]*(\w+))");
    static const std::regex kAligned(R"(\balignas\([^)]*\)\s*)");
    const std::string plain = std::regex_replace(code, kAligned, "");
    Names names;
    for (std::sregex_iterator at(plain.begin(), plain.end(), kOwn), end; at != end; ++at) names.insert((*at)[1]);
    return names;
}

// A name of namespace `declared` is found, unqualified, in itself and in what is nested in it.
bool is_visible(const std::string& declared, const Names& spaces) {
    return std::any_of(spaces.begin(), spaces.end(), [&](const std::string& space) {
        return space == declared || space.starts_with(declared + "::");
    });
}

}  // namespace

Includes::Includes(const std::vector<SourceFile>& files) {
    static const std::regex kType(
        R"((?:^|\n)(?:struct|class|enum class|union)\s+(?:alignas\([^)]*\)\s*)?([A-Z]\w+)\s*(?:final\s*)?[:{])");
    for (const SourceFile& file : files) {
        if (!file.path.ends_with(".h")) continue;
        included_by_[file.path] = included(file.text);
        const std::string code = code_of(file);
        const Names spaces = spaces_of(code);
        if (spaces.empty()) continue;
        for (std::sregex_iterator at(code.begin(), code.end(), kType), end; at != end; ++at) {
            types_.emplace((*at)[1], Declaration{file.path, *spaces.begin()});
        }
    }
}

std::set<std::string> Includes::reached(const SourceFile& file) const {
    std::vector<std::string> left = included(file.text);
    std::set<std::string> seen = {file.path};
    while (!left.empty()) {
        const std::string header = left.back();
        left.pop_back();
        const auto ours = included_by_.find(header);
        if (seen.insert(header).second && ours != included_by_.end())
            left.insert(left.end(), ours->second.begin(), ours->second.end());
    }
    return seen;
}

Violations Includes::missing(const SourceFile& file) const {
    static const std::regex kStandard(R"(((?:cuda::)?)\bstd::(?:ranges::)?(\w+))");
    static const std::regex kName(R"((^|[^\w:.>])([A-Z]\w+)\b)");
    const std::string code = code_of(file);
    const std::set<std::string> headers = reached(file);
    const Names spaces = spaces_of(code);
    const Names own = own_names(code);
    Names found;
    for (std::sregex_iterator at(code.begin(), code.end(), kStandard), end; at != end; ++at) {
        if ((*at)[1].length() > 0) continue;  // another library's
        const auto known = standard_headers().find((*at)[2]);
        if (known == standard_headers().end() || headers.contains(known->second)) continue;
        found.insert(fmt::format("{}: names std::{} without <{}>", file.path, known->first, known->second));
    }
    for (std::sregex_iterator at(code.begin(), code.end(), kName), end; at != end; ++at) {
        const std::string name = (*at)[2];
        const auto [first, last] = types_.equal_range(name);
        if (first == last || own.contains(name)) continue;
        const bool is_there =
            std::any_of(first, last, [&](const auto& t) { return headers.contains(t.second.header); });
        const auto meant = std::find_if(first, last, [&](const auto& t) { return is_visible(t.second.space, spaces); });
        if (is_there || meant == last) continue;
        found.insert(fmt::format("{}: names {} without {}", file.path, name, meant->second.header));
    }
    return {found.begin(), found.end()};
}

}  // namespace verbatim::house
