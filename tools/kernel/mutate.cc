#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <string>
#include <string_view>

#include "tools/kernel/compile_kernel.h"

namespace verbatim::tools {
namespace {

constexpr std::array<std::string_view, 3> kBarriers = {"sync_block", "sync_warp", "wait_async"};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Comments and strings as blanks; every place stays where it is.
std::string without_comments(const std::string& text) {
    std::string code = text;
    for (size_t i = 0; i < text.size();) {
        size_t end = i;
        if (text.compare(i, 2, "//") == 0) end = std::min(text.find('\n', i), text.size());
        if (text.compare(i, 2, "/*") == 0) end = std::min(text.find("*/", i), text.size() - 2) + 2;
        if (text[i] == '"') {
            end = i + 1;
            while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
            end = std::min(end + 1, text.size());
        }
        for (size_t k = i; k < end; ++k) code[k] = code[k] == '\n' ? '\n' : ' ';
        i = end > i ? end : i + 1;
    }
    return code;
}

// Behind the call that begins at `name`'s end: "<0>()" or "(mask)". 0: it is no call.
size_t end_of_call(const std::string& code, size_t at) {
    if (at < code.size() && code[at] == '<') at = code.find('>', at) + 1;
    if (at >= code.size() || code[at] != '(') return 0;
    int depth = 0;
    for (; at < code.size(); ++at) {
        depth += code[at] == '(' ? 1 : code[at] == ')' ? -1 : 0;
        if (depth == 0) return at + 1;
    }
    return 0;
}

// Where the call's qualified name begins.
size_t begin_of_name(const std::string& code, size_t at) {
    while (at > 0 && (is_word(code[at - 1]) || code[at - 1] == ':')) --at;
    return at;
}

}  // namespace

MutatedSource mutated_source(const std::string& text, const std::string& file) {
    const std::string code = without_comments(text);
    MutatedSource mutated;
    mutated.text = fmt::format(
        "extern \"C\" {{ __attribute__((visibility(\"default\"))) int verbatim_dropped_barrier = 0; }}\n#line 1 {:?}\n",
        file);
    size_t copied = 0;
    for (size_t i = 0; i < code.size(); ++i) {
        for (const std::string_view name : kBarriers) {
            if (code.compare(i, name.size(), name) != 0 || (i > 0 && is_word(code[i - 1]))) continue;
            const size_t end = end_of_call(code, i + name.size());
            const size_t begin = begin_of_name(code, i);
            if (end == 0 || begin < copied) continue;
            mutated.text += text.substr(copied, begin - copied);
            const std::string call = text.substr(begin, end - begin);
            const auto line =
                static_cast<int>(std::count(text.begin(), text.begin() + static_cast<int64_t>(begin), '\n')) + 1;
            mutated.barriers.push_back({line, call});
            mutated.text += fmt::format("(verbatim_dropped_barrier == {} ? static_cast<void>(0) : {})",
                                        mutated.barriers.size(), call);
            copied = end;
        }
    }
    mutated.text += text.substr(copied);
    return mutated;
}

}  // namespace verbatim::tools
