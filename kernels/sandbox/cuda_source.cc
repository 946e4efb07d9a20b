#include "kernels/sandbox/cuda_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <iterator>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "files/repository_path.h"
#include "kernels/sandbox/inline_ptx.h"

namespace verbatim::sandbox {
namespace {

// What g++ would not know, or would take for something else.
struct NotTaken {
    const char* pattern;
    const char* why;
};
constexpr NotTaken kNotTaken[] = {
    {R"(\b__managed__\b)", "__managed__ variables are not taken"},
    {R"(\bextern\s+__device__)", "variables of other files are not taken"},
    {R"(\bcuda(Malloc(?!Async\b|\b)|Free(?!Async\b|\b)|Memcpy(2D(?!Async\b|\b)|3D|Peer|Batch)|)"
     R"(Memset(2D|3D)|LaunchKernelExC)\w*\b)",
     "run() is given device memory and may only launch: this call of CUDA's runtime is not taken"},
    {R"(\b(cudaLaunchCooperativeKernelMultiDevice|this_multi_grid|multi_grid_group)\b)",
     "launches on several devices are not taken"},
    {R"(\b(cudaLaunchAttributeCluster(?!Dimension\b)\w*|cudaLaunchAttributePreferredCluster\w*|__cluster[A-Z]\w*)\b)",
     "of clusters the dimensions, this_cluster() and its members are taken, and no more"},
    {R"(\b(texture|surface|tex[123]D|surf[123]D)\s*<)", "textures and surfaces are not taken"},
};
// What begins so and is not in kernels/sandbox/cuda: the machine may have a CUDA toolkit, whose headers g++ would find.
constexpr const char* kNotIncluded[] = {
    "torch/", "ATen/",  "c10/",           "cuda/",    "cute/",    "cutlass/", "thrust/",
    "mma.h",  "curand", "cuda_awbarrier", "cuda_fp4", "cuda_fp6", "cub/",     "cooperative_groups/",
    "nv/"};

const std::regex& pattern_of(const NotTaken& one) {
    static const std::vector<std::regex> kPatterns = [] {
        std::vector<std::regex> patterns;
        for (const NotTaken& known : kNotTaken) patterns.emplace_back(known.pattern);
        return patterns;
    }();
    return kPatterns[static_cast<size_t>(&one - kNotTaken)];
}

// R"delimiter( ... )delimiter": its quotation mark is at `i`.
bool is_raw_literal(std::string_view text, size_t i) {
    if (text[i] != '"' || i == 0 || text[i - 1] != 'R') return false;
    size_t begin = i - 1;
    while (begin > 0 && is_of_a_name(text[begin - 1])) --begin;
    const std::string_view prefix = text.substr(begin, i - begin);
    return prefix == "R" || prefix == "LR" || prefix == "uR" || prefix == "UR" || prefix == "u8R";
}

}  // namespace

std::string code_of(std::string_view text) {
    std::string code(text);
    const auto blank = [&](size_t begin, size_t end) {
        for (size_t i = begin; i < std::min(end, code.size()); ++i) {
            if (code[i] != '\n') code[i] = ' ';
        }
        return std::min(end, code.size());
    };
    const auto behind = [&](std::string_view what, size_t from) {
        const size_t at = text.find(what, from);
        return at == std::string_view::npos ? text.size() : at + what.size();
    };
    for (size_t i = 0; i < code.size();) {
        if (text.substr(i).starts_with("//")) {
            i = blank(i, std::min(text.find('\n', i), text.size()));
        } else if (text.substr(i).starts_with("/*")) {
            i = blank(i, behind("*/", i + 2));
        } else if (is_raw_literal(text, i)) {
            const size_t open = std::min(text.find('(', i), text.size());
            const std::string close = fmt::format("){}\"", text.substr(i + 1, open - i - 1));
            const size_t end = behind(close, open);
            blank(i + 1, end - 1);
            i = end;
        } else if (text[i] == '"' || (text[i] == '\'' && (i == 0 || std::isalnum(text[i - 1]) == 0))) {
            size_t end = i + 1;
            while (end < text.size() && text[end] != text[i] && text[end] != '\n') end += text[end] == '\\' ? 2 : 1;
            blank(i + 1, end);
            i = end + 1;
        } else {
            ++i;
        }
    }
    return code;
}

namespace {

bool is_name(char c) { return is_of_a_name(c) || c == ':'; }

// A backslash is a blank, too: it joins the lines of a macro.
size_t behind_blanks_before(const std::string& code, size_t end) {
    while (end > 0 && (std::isspace(static_cast<unsigned char>(code[end - 1])) != 0 || code[end - 1] == '\\')) --end;
    return end;
}

// The place of the bracket that opens the one that closes before `end`; 0 if none does.
size_t open_bracket(const std::string& code, size_t end, char open, char close) {
    int depth = 0;
    while (end > 0) {
        --end;
        depth += (code[end] == close ? 1 : 0) - (code[end] == open ? 1 : 0);
        if (depth == 0) return end;
    }
    return 0;
}

// The place of the `<` of the template's arguments that end before `end`; what is in parentheses may compare.
size_t open_angle(const std::string& code, size_t end) {
    int depth = 0;
    while (end > 0) {
        --end;
        if (code[end] == ')') end = open_bracket(code, end + 1, '(', ')');
        depth += (code[end] == '>' ? 1 : 0) - (code[end] == '<' ? 1 : 0);
        if (depth == 0) return end;
    }
    return 0;
}

// Whether a name ends here, which the parentheses behind it call, and no word of a statement.
bool is_callee_before(const std::string& code, size_t end) {
    size_t begin = end;
    while (begin > 0 && is_name(code[begin - 1])) --begin;
    const std::string word = code.substr(begin, end - begin);
    return !word.empty() && word != "return" && word != "else" && word != "do";
}

// Where the callee begins that ends before `end`: "ns::kernel<T>", "kernels[i]", "params.kernel", "(*kernel)",
// "kernel_of(n)", "name##_kernel".
size_t begin_of_callee(const std::string& code, size_t end) {
    size_t at = behind_blanks_before(code, end);
    for (bool is_whole = false; !is_whole;) {
        if (at > 0 && code[at - 1] == '>') at = behind_blanks_before(code, open_angle(code, at));
        while (at > 0 && code[at - 1] == ']') at = behind_blanks_before(code, open_bracket(code, at, '[', ']'));
        if (at > 0 && code[at - 1] == ')') {
            const size_t open = open_bracket(code, at, '(', ')');
            at = behind_blanks_before(code, open);
            if (!is_callee_before(code, at)) return open;
        }
        const size_t behind_name = at;
        while (at > 0 && is_name(code[at - 1])) --at;
        if (at == behind_name) return end;  // no callee
        const size_t before = behind_blanks_before(code, at);
        if (before > 0 && code[before - 1] == '.') {
            at = behind_blanks_before(code, before - 1);
        } else if (before > 1 && (code.compare(before - 2, 2, "->") == 0 || code.compare(before - 2, 2, "##") == 0)) {
            at = behind_blanks_before(code, before - 2);
        } else {
            is_whole = true;
        }
    }
    return at;
}

std::string without_scopes(const std::string& name) { return name.substr(name.rfind(':') + 1); }

// "__launch_bounds__(256) void kernel(...) {" -> the body looks at the bounds first.
std::vector<SourceChange> bounds_of(const std::string& code) {
    std::vector<SourceChange> changes;
    constexpr std::string_view kBounds = "__launch_bounds__";
    for (size_t at = code.find(kBounds); at != std::string::npos; at = code.find(kBounds, at + 1)) {
        const size_t open = code.find_first_not_of(" \n\t", at + kBounds.size());
        if (open == std::string::npos || code[open] != '(') continue;
        const size_t close = behind_bracket(code, open);
        const size_t parameters = code.find_first_of("(;{", close);
        if (parameters == std::string::npos || code[parameters] != '(') continue;
        const size_t body = code.find_first_not_of(" \n\t", behind_bracket(code, parameters));
        if (body == std::string::npos || code[body] != '{') continue;  // a declaration
        std::string bounds = code.substr(open, close - open);
        std::ranges::replace(bounds, '\n', ' ');
        changes.push_back({body + 1, body + 1, fmt::format(" ::verbatim::cuda_source::launch_bounds{};", bounds)});
    }
    return changes;
}

std::string in_one_line(std::string text) {
    for (size_t at = text.find("\\\n"); at != std::string::npos; at = text.find("\\\n")) text.erase(at, 1);
    std::ranges::replace(text, '\n', ' ');
    return text;
}

// "2, 1, 1" of __cluster_dims__(2, 1, 1) in a kernel's declaration; empty: it has none.
std::string cluster_dims_in(const std::string& declaration) {
    constexpr std::string_view kDims = "__cluster_dims__";
    const size_t at = declaration.find(kDims);
    const size_t open = at == std::string::npos ? at : declaration.find_first_not_of(" \n\t", at + kDims.size());
    if (open == std::string::npos || declaration[open] != '(') return "";
    return declaration.substr(open + 1, behind_bracket(declaration, open) - open - 2);
}

// "__global__ void kernel(...) {" -> the body says that it begins.
std::vector<SourceChange> begins_of(const std::string& code) {
    std::vector<SourceChange> changes;
    constexpr std::string_view kKernel = "__global__";
    const auto is_of_attribute = [&](size_t open) {
        const size_t end = behind_blanks_before(code, open);
        return std::ranges::any_of(
            std::array{"__launch_bounds__", "__maxnreg__", "__attribute__", "__cluster_dims__"},
            [&](std::string_view word) { return std::string_view(code).substr(0, end).ends_with(word); });
    };
    for (size_t at = code.find(kKernel); at != std::string::npos; at = code.find(kKernel, at + 1)) {
        size_t open = code.find_first_of("(;{", at);
        while (open != std::string::npos && code[open] == '(' && is_of_attribute(open))
            open = code.find_first_of("(;{", behind_bracket(code, open));
        if (open == std::string::npos || code[open] != '(') continue;
        const size_t body = code.find_first_not_of(" \n\t", behind_bracket(code, open));
        if (body == std::string::npos || code[body] != '{') continue;  // a declaration
        const size_t before = code.find_last_of(";{}", at);
        const size_t begin = before == std::string::npos ? 0 : before + 1;
        const std::string dims = cluster_dims_in(code.substr(begin, body - begin));
        changes.push_back(
            {body + 1, body + 1, fmt::format(" ::verbatim::cuda_source::kernel_begins({});", in_one_line(dims))});
    }
    return changes;
}

// "kernel<T><<<grid, block>>>" -> a launcher.
Result<std::vector<SourceChange>> launches_of(const std::string& path, std::string_view text, const std::string& code) {
    std::vector<SourceChange> changes;
    for (size_t at = code.find("<<<"); at != std::string::npos; at = code.find("<<<", at + 3)) {
        const size_t end = code.find(">>>", at);
        const size_t begin = begin_of_callee(code, at);
        if (end == std::string::npos || begin >= at)
            return error("{}:{}: a launch is written kernel<<<grid, block>>>(...)", path, line_of(text, at));
        const std::string callee(text.substr(begin, at - begin));
        const std::string config(text.substr(at + 3, end - at - 3));
        // Without arguments of a template, but for a callee whose brackets have some.
        const std::string name =
            without_scopes(callee.substr(0, callee.find('(') == 0 ? callee.npos : callee.find('<')));
        changes.push_back({begin, end + 3,
                           fmt::format("::verbatim::cuda_source::launcher(VERBATIM_TEXT_OF({0}), "
                                       "VERBATIM_ADDRESS_OF({1}), ::verbatim::cuda_source::Config({2}), "
                                       "VERBATIM_CALL({3}))",
                                       in_one_line(name), in_one_line(callee), config, callee)});
    }
    return changes;
}

// "cudaLaunchCooperativeKernel((void*)kernel, ...)" -> the kernel, whose parameters are known without the cast.
std::vector<SourceChange> casts_of_launches(const std::string& code) {
    static const std::regex kCast(
        R"(\bcudaLaunch(?:Cooperative)?Kernel\s*\(\s*(\(\s*(?:const\s+)?void\s*(?:const\s*)?\*\s*\)|)"
        R"((?:reinterpret|static)_cast\s*<\s*(?:const\s+)?void\s*(?:const\s*)?\*\s*>))");
    std::vector<SourceChange> changes;
    for (auto found = std::sregex_iterator(code.begin(), code.end(), kCast); found != std::sregex_iterator(); ++found) {
        const auto begin = static_cast<size_t>(found->position(1));
        changes.push_back({begin, begin + static_cast<size_t>(found->length(1)), ""});
    }
    return changes;
}

// The names that a declaration declares: "float a[32], b" -> a, b; "struct { int x[4]; } s" -> s.
std::vector<std::string> declared(const std::string& declaration) {
    std::vector<std::string> names;
    int angles = 0, brackets = 0;               // `a[n > 1 ? n : 1]` compares
    size_t begin = 0, end = std::string::npos;  // of a declarator, without its array's size and its value
    for (size_t i = 0; i <= declaration.size(); ++i) {
        const char c = i < declaration.size() ? declaration[i] : ',';
        if (angles == 0 && brackets == 0 && (c == '[' || c == '=' || c == ',')) end = std::min(end, i);
        if (c == '(' || c == '[' || c == '{') ++brackets;
        if (c == ')' || c == ']' || c == '}') --brackets;
        if (brackets == 0) angles += (c == '<' ? 1 : 0) - (c == '>' ? 1 : 0);
        if (c != ',' || angles != 0 || brackets != 0) continue;
        std::string part = declaration.substr(begin, end - begin);
        end = std::string::npos;
        while (!part.empty() && !is_name(part.back())) part.pop_back();
        size_t first = part.size();
        while (first > 0 && is_name(part[first - 1])) --first;
        names.push_back(part.substr(first));
        begin = i + 1;
    }
    return names;
}

// "extern __shared__ __align__(16) T name[]": a reference to an array without a size.
std::optional<std::string> dynamic_array(const std::string& declaration) {
    static const std::regex kArray(R"(^((__align__|alignas)\s*\([^)]*\))?\s*(.*[^\w:>])?(\w+)\s*\[\s*\]\s*$)");
    static const std::regex kBlanks(R"(\s+)");
    const std::string line = std::regex_replace(declaration, kBlanks, " ");
    const std::string trimmed = line.substr(std::min(line.find_first_not_of(' '), line.size()));
    std::smatch found;
    if (!std::regex_match(trimmed, found, kArray)) return std::nullopt;
    std::string type = found.str(3);
    // An alignment may stand behind the type, too.
    for (const char* word : {"__align__", "alignas"}) {
        if (const size_t at = type.find(word); at != std::string::npos)
            type.replace(at, type.find(')', at) + 1 - at, "");
    }
    return fmt::format("auto& {1} = *static_cast<{0} (*)[]>(::verbatim::cuda_source::dynamic_shared());", type,
                       found.str(4));
}

// The place behind "__align__(16)" or "alignas(16)", if one begins here, and else here.
size_t behind_alignment(const std::string& code, size_t at) {
    const size_t word = std::min(code.find_first_not_of(" \n\t", at), code.size());
    if (code.compare(word, 9, "__align__") != 0 && code.compare(word, 7, "alignas") != 0) return at;
    const size_t close = code.find(')', word);
    return close == std::string::npos ? at : close + 1;
}

// "alignas(128) float a[4]": C++ has the alignment first.
std::string static_array_of(const std::string& declaration) {
    const size_t end = behind_alignment(declaration, 0);
    const size_t word = std::min(declaration.find_first_not_of(" \n\t"), declaration.size());
    if (end == 0 || declaration.compare(word, 7, "alignas") != 0) return "static" + declaration + ";";
    return declaration.substr(word, end - word) + " static" + declaration.substr(0, word) + declaration.substr(end) +
           ";";
}

// The semicolon that ends what begins here: "union { T a; U b; } both;" has more.
size_t end_of_declaration(const std::string& code, size_t at) {
    int braces = 0;
    for (; at < code.size(); ++at) {
        braces += (code[at] == '{' ? 1 : 0) - (code[at] == '}' ? 1 : 0);
        if (code[at] == ';' && braces <= 0) return at;
    }
    return std::string::npos;
}

Result<std::vector<SourceChange>> shared_of(const std::string& path, std::string_view text, const std::string& code) {
    std::vector<SourceChange> changes;
    constexpr std::string_view kShared = "__shared__";
    for (size_t at = code.find(kShared); at != std::string::npos; at = code.find(kShared, at + 1)) {
        const size_t end = end_of_declaration(code, at);
        const size_t before = code.find_last_not_of(" \n\t", at - 1);
        const auto is_behind = [&](std::string_view word) {
            return before != std::string::npos && before + 1 >= word.size() &&
                   code.compare(before + 1 - word.size(), word.size(), word) == 0;
        };
        const bool is_extern = is_behind("extern");
        constexpr size_t kWord = 6;  // of `extern` and `static`
        if (end == std::string::npos) return error("{}:{}: a declaration without an end", path, line_of(text, at));
        constexpr size_t kLongest = 4096;  // longer than a pattern is matched against
        if (end - at > kLongest)
            return error("{}:{}: a declaration has at most {} characters", path, line_of(text, at), kLongest);
        const size_t begin = is_extern || is_behind("static") ? before + 1 - kWord : at;
        const std::string declaration(text.substr(at + kShared.size(), end - at - kShared.size()));
        const std::string lines(static_cast<size_t>(std::count(code.begin() + static_cast<int64_t>(begin),
                                                               code.begin() + static_cast<int64_t>(end), '\n')),
                                '\n');
        if (is_extern) {
            const auto array = dynamic_array(code.substr(at + kShared.size(), end - at - kShared.size()));
            if (!array) {
                return error("{}:{}: dynamic shared memory is written `extern __shared__ T name[];`", path,
                             line_of(text, at));
            }
            changes.push_back({begin, end + 1, *array + lines});
            continue;
        }
        const std::string first_lines(
            std::count(code.begin() + static_cast<int64_t>(begin), code.begin() + static_cast<int64_t>(at), '\n'),
            '\n');
        std::string after = first_lines + static_array_of(declaration);
        for (const std::string& name : declared(declaration))
            after += fmt::format(" ::verbatim::cuda_source::shared_array({0}, __alignof__({0}));", name);
        changes.push_back({begin, end + 1, after});
    }
    return changes;
}

// Whether the declaration that `at` is in has the word before it.
bool has_word_before(const std::string& code, size_t at, std::string_view word) {
    const size_t before = code.find_last_of(";{}", at);
    const std::string declaration = code.substr(before == std::string::npos ? 0 : before + 1, at - before - 1);
    for (size_t found = declaration.find(word); found != std::string::npos; found = declaration.find(word, found + 1)) {
        const size_t behind = found + word.size();
        if ((found == 0 || !is_of_a_name(declaration[found - 1])) &&
            (behind == declaration.size() || !is_of_a_name(declaration[behind])))
            return true;
    }
    return false;
}

// "static __constant__ float table[4]": static already, as the macro would have it.
std::vector<SourceChange> static_constants_of(const std::string& code) {
    std::vector<SourceChange> changes;
    constexpr std::string_view kConstant = "__constant__";
    for (size_t at = code.find(kConstant); at != std::string::npos; at = code.find(kConstant, at + 1)) {
        const size_t behind = at + kConstant.size(), end = std::min(code.find_first_of(";={", behind), code.size());
        if (has_word_before(code, at, "static") || has_word_before(code, end, "static"))
            changes.push_back({at, behind, ""});
    }
    return changes;
}

// "__device__ float sums[32];" -> a static array that the emulator knows. What has a parenthesis before its end is
// a function.
std::vector<SourceChange> variables_of(std::string_view text, const std::string& code) {
    std::vector<SourceChange> changes;
    constexpr std::string_view kDevice = "__device__";
    for (size_t at = code.find(kDevice); at != std::string::npos; at = code.find(kDevice, at + 1)) {
        const size_t first = at + kDevice.size();
        const size_t end = code.find_first_of(";({=", behind_alignment(code, first));
        const bool is_variable = end != std::string::npos && (code[end] == ';' || code[end] == '=') &&
                                 !has_word_before(code, at, "constexpr");
        const std::string type = code.substr(first, std::min(end, code.size()) - first);
        // A lambda's, a constant's and an operator's are none.
        constexpr const char* kOthers[] = {"__constant__", "constexpr", "operator", "__host__", "__global__", "]"};
        const auto has = [&](const char* word) {
            const size_t found = type.find(word);
            return found != std::string::npos && (word[0] != ']' || type.find('[') > found);
        };
        if (!is_variable || std::ranges::any_of(kOthers, has)) continue;
        const size_t last = code.find(';', end);
        if (last == std::string::npos) continue;
        const std::string before = code.substr(0, at);
        const size_t word = before.find_last_not_of(" \n\t");
        const bool is_static = word != std::string::npos && word >= 5 && before.substr(word - 5, 6) == "static";
        const std::string declaration(text.substr(first, last - first));
        std::string after = is_static ? declaration + ";" : static_array_of(declaration);
        for (const std::string& name : declared(code.substr(first, last - first))) {
            after += fmt::format(
                " [[maybe_unused]] static const bool verbatim_told_{0} = ::verbatim::cuda_source::told_variable({0});",
                name);
        }
        changes.push_back({at, last + 1, after});
    }
    return changes;
}

Status refuse_what_is_not_taken(const std::string& path, std::string_view text, const std::string& code) {
    static const std::regex kInclude(R"(^\s*#\s*include\s*[<"]([^>"]*)[>"])");
    std::istringstream code_lines(code), text_lines{std::string(text)};
    std::string line, whole;
    for (int number = 1; std::getline(code_lines, line) && std::getline(text_lines, whole); ++number) {
        const auto refuse = [&](const std::string& why) {
            return error("{}:{}: {} (kernels/sandbox/cuda/source.h lists what is taken)", path, number, why);
        };
        constexpr size_t kLongest = 4096;  // longer than a pattern is matched against
        if (line.size() > kLongest) return refuse(fmt::format("a line has at most {} characters", kLongest));
        std::smatch found;
        if (std::regex_search(whole, found, kInclude) && line.find('#') != std::string::npos) {
            const std::string header = found.str(1);
            const auto is_it = [&](const char* known) { return header.starts_with(known); };
            const bool is_here = std::filesystem::exists(repository_path("kernels/sandbox/cuda/" + header));
            if (!is_here && std::ranges::any_of(kNotIncluded, is_it))
                return refuse(fmt::format("<{}> is not taken", header));
            continue;
        }
        for (const NotTaken& one : kNotTaken) {
            if (std::regex_search(line, found, pattern_of(one)))
                return refuse(fmt::format("`{}`: {}", found.str(), one.why));
        }
    }
    return {};
}

// "config.gridDim" -> the member's name without a macro's (kernels/sandbox/cuda/source_runtime.h).
std::string with_members_of_launches(std::string_view text) {
    static const std::regex kMember(R"((?:\.|->)\s*((?:grid|block)Dim)\b)");
    const std::string code = code_of(text);
    std::string out;
    size_t done = 0;
    for (auto found = std::sregex_iterator(code.begin(), code.end(), kMember); found != std::sregex_iterator();
         ++found) {
        const auto begin = static_cast<size_t>(found->position(1));
        out.append(text.substr(done, begin - done)).append("verbatim_");
        done = begin;
    }
    return out.append(text.substr(done));
}

}  // namespace

bool is_cuda_source(std::string_view text) { return code_of(text).find("__global__") != std::string::npos; }

Result<std::string> translate_cuda(const std::string& path, std::string_view given) {
    const std::string text_of_file = with_members_of_launches(given);
    const std::string_view text = text_of_file;
    const std::string code = code_of(text);
    RETURN_IF_ERROR(refuse_what_is_not_taken(path, text, code));
    ASSIGN_OR_RETURN(std::vector<SourceChange> changes, launches_of(path, text, code));
    ASSIGN_OR_RETURN(std::vector<SourceChange> shared, shared_of(path, text, code));
    ASSIGN_OR_RETURN(std::vector<SourceChange> ptx, inline_ptx_of(path, text, code));
    std::vector<SourceChange> variables = variables_of(text, code);
    std::vector<SourceChange> constants = static_constants_of(code);
    std::vector<SourceChange> bounds = bounds_of(code);
    std::vector<SourceChange> begins = begins_of(code);
    std::vector<SourceChange> casts = casts_of_launches(code);
    for (auto* more : {&shared, &ptx, &variables, &constants, &bounds, &begins, &casts})
        std::ranges::move(*more, std::back_inserter(changes));
    std::ranges::sort(changes, {}, &SourceChange::begin);
    std::string out = fmt::format("#line 1 \"{}\"\n", path);
    size_t done = 0;
    for (const SourceChange& change : changes) {
        out += text.substr(done, change.begin - done);
        out += change.text;
        done = change.end;
    }
    out += text.substr(done);
    if (code.find("__cluster_dims__") != std::string::npos) out += "\nVERBATIM_HAS_CLUSTERS\n";
    return out;
}

}  // namespace verbatim::sandbox
