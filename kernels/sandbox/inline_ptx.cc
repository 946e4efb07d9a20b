#include "kernels/sandbox/inline_ptx.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "kernels/simt/ptx_program.h"

namespace verbatim::sandbox {
namespace {

constexpr const char* kSee = "docs/kernel-sandbox.md lists the PTX that is taken";
constexpr const char* kOperand = "an operand of `asm` is written \"constraint\"(expression)";

bool is_blank_or_continued(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0 || c == '\\'; }

struct Part {
    size_t begin, end;
};

// What lies between `begin` and `end`, cut at the separators outside of brackets.
std::vector<Part> parts_of(const std::string& code, size_t begin, size_t end, char separator) {
    std::vector<Part> parts;
    int depth = 0;
    bool in_literal = false;
    for (size_t i = begin; i <= end; ++i) {
        const char c = i < end ? code[i] : separator;
        if (c == '"' && i < end) in_literal = !in_literal;
        if (in_literal && i < end) continue;
        if (c == '(' || c == '[' || c == '{') ++depth;
        if (c == ')' || c == ']' || c == '}') --depth;
        if (c != separator || (depth != 0 && i < end)) continue;
        parts.push_back({begin, i});
        begin = i + 1;
    }
    return parts;
}

// Whether literals and blanks are all that lies there.
bool is_literals(const std::string& code, size_t begin, size_t end) {
    bool in_literal = false;
    for (size_t i = begin; i < end; ++i) {
        if (code[i] == '"') in_literal = !in_literal;
        if (!in_literal && code[i] != '"' && !is_blank_or_continued(code[i])) return false;
    }
    return true;
}

// Whether the sections of an `asm` are literals, and lists of "constraint" (expression).
bool is_plain(const std::string& code, const std::vector<Part>& sections) {
    if (!is_literals(code, sections[0].begin, sections[0].end)) return false;
    for (size_t i = 1; i < std::min<size_t>(sections.size(), 3); ++i) {
        for (const Part& part : parts_of(code, sections[i].begin, sections[i].end, ',')) {
            const size_t open = std::min(code.find('(', part.begin), part.end);
            const bool is_blank = std::all_of(code.begin() + static_cast<int64_t>(part.begin),
                                              code.begin() + static_cast<int64_t>(part.end), is_blank_or_continued);
            if (!is_blank && (open == part.end || !is_literals(code, part.begin, open))) return false;
        }
    }
    return true;
}

// The text of string literals, and where each of its characters is in the source.
struct Literals {
    std::string text;
    std::vector<size_t> places;
    std::string source;  // the literals as they stand

    void add(char c, size_t place) {
        text += c;
        places.push_back(place);
    }
    [[nodiscard]] size_t place(size_t at) const { return places.empty() ? 0 : places[std::min(at, places.size() - 1)]; }
};

class Asm {
public:
    Asm(const std::string& path, std::string_view text, const std::string& code, const AsmPlace& place)
        : path_(path), text_(text), code_(code), at_(place.begin), end_(place.end) {}

    Result<SourceChange> change() {
        if (end_ == std::string::npos) return refuse(at_, "`asm` is written asm volatile(\"...\" : outputs : inputs)");
        const std::vector<Part> sections = parts_of(code_, code_.find('(', at_) + 1, end_ - 1, ':');
        RETURN_IF_ERROR(read_literals(sections[0]));
        for (size_t i = 1; i < std::min<size_t>(sections.size(), 3); ++i) RETURN_IF_ERROR(read_operands(sections[i]));
        simt::PtxProgram program;
        simt::PtxProblem problem;
        if (!simt::read_ptx(literals_.text, num_operands_, program, problem)) {
            return refuse(literals_.place(problem.at), fmt::format("{}: {}", problem.what, kSee));
        }
        return SourceChange{at_, end_, call()};
    }

private:
    tl::unexpected<Error> refuse(size_t at, const std::string& what) const {
        return error("{}:{}: {}", path_, line_of(text_, at), what);
    }

    Status read_literals(const Part& part) {
        for (size_t i = part.begin; i < part.end;) {
            if (is_blank_or_continued(code_[i])) {
                ++i;
                continue;
            }
            if (code_[i] != '"')
                return refuse(i, "the PTX of `asm` is not taken but as string literals, and macros of them");
            const size_t begin = i++;
            for (; i < part.end && text_[i] != '"'; ++i) {
                if (text_[i] != '\\') {
                    literals_.add(text_[i], i);
                    continue;
                }
                ++i;
                const char c = text_[i];
                if (std::string_view("ntr\\\"'?\n").find(c) == std::string_view::npos)
                    return refuse(i, fmt::format("`\\{}` in the PTX of `asm` is not taken", c));
                literals_.add(c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c, i);
            }
            literals_.source += std::string(text_.substr(begin, ++i - begin)) + " ";
        }
        return {};
    }

    // "constraint" (expression), ...
    Status read_operands(const Part& section) {
        for (const Part& part : parts_of(code_, section.begin, section.end, ',')) {
            size_t at = part.begin;
            const auto skip = [&] {
                while (at < part.end && is_blank_or_continued(code_[at])) ++at;
            };
            skip();
            if (at == part.end) continue;
            if (code_[at] == '[') return refuse(at, "nvcc takes no `asm` with named operands");
            std::string constraint;
            const size_t first = at;
            while (at < part.end && code_[at] == '"') {
                const size_t close = std::min(text_.find('"', at + 1), part.end);
                constraint += text_.substr(at + 1, close - at - 1);
                at = std::min(close + 1, part.end);
                skip();
            }
            if (at == first) return refuse(at, kOperand);
            if (at == part.end || code_[at] != '(') return refuse(at, kOperand);
            const char kind = constraint.empty() ? ' ' : constraint.back();
            const bool is_output = constraint[0] == '=' || constraint[0] == '+';
            if (std::string_view("rlhfdn").find(kind) == std::string_view::npos ||
                constraint.size() != (is_output ? 2U : 1U))
                return refuse(at, fmt::format("`{}`: this constraint of `asm` is not taken", constraint));
            ++num_operands_;
            const char* const how = constraint[0] == '=' ? "ptx_out" : constraint[0] == '+' ? "ptx_both" : "ptx_in";
            operands_ += fmt::format(", ::verbatim::cuda_source::{}<'{}'>{}", how, kind, in_one_line(at, part.end));
        }
        return {};
    }

    // Without the ends of lines, and the backslashes before them in a macro.
    [[nodiscard]] std::string in_one_line(size_t begin, size_t end) const {
        std::string line;
        for (size_t i = begin; i < end; ++i) {
            const bool is_continued = text_[i] == '\\' && i + 1 < end && text_[i + 1] == '\n';
            line += text_[i] == '\n' || is_continued ? ' ' : text_[i];
        }
        return line;
    }

    // The call, with the ends of lines behind it: no line moves.
    [[nodiscard]] std::string call() const {
        std::string lines;
        for (size_t i = at_; i < end_; ++i) {
            if (text_[i] == '\n') lines += i > 0 && text_[i - 1] == '\\' ? " \\\n" : "\n";
        }
        // Without an instruction it is for the compiler alone, which a fence of registers asks to keep them.
        const bool is_empty = literals_.text.find_first_not_of(" \t\r\n;") == std::string::npos;
        if (is_empty && operands_.find("ptx_out") == std::string::npos) return "((void)0)" + lines;
        const char* const what =
            literals_.text.find("wgmma.mma_async") != std::string::npos ? "inline_wgmma" : "inline_ptx";
        return fmt::format("::verbatim::cuda_source::{}(::verbatim::cuda_source::Place::current(), {}{}){}", what,
                           literals_.source.empty() ? "\"\"" : literals_.source, operands_, lines);
    }

    const std::string& path_;
    std::string_view text_;
    const std::string& code_;
    size_t at_, end_;
    Literals literals_;
    size_t num_operands_ = 0;
    std::string operands_;
};

}  // namespace

bool is_of_a_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

size_t line_of(std::string_view text, size_t at) {
    return static_cast<size_t>(std::count(text.begin(), text.begin() + static_cast<int64_t>(at), '\n')) + 1;
}

size_t behind_bracket(const std::string& code, size_t open) {
    int depth = 0;
    for (size_t i = open; i < code.size(); ++i) {
        depth += (code[i] == '(' ? 1 : 0) - (code[i] == ')' ? 1 : 0);
        if (depth == 0) return i + 1;
    }
    return std::string::npos;
}

std::vector<AsmPlace> asms_of(const std::string& code) {
    std::vector<AsmPlace> places;
    for (size_t i = 0; i < code.size(); ++i) {
        if (!is_of_a_name(code[i])) continue;
        const size_t begin = i;
        while (i < code.size() && is_of_a_name(code[i])) ++i;
        const std::string_view word = std::string_view(code).substr(begin, i - begin);
        if (word != "asm" && word != "__asm" && word != "__asm__") continue;
        const size_t open = std::min(code.find_first_of("(;{", i), code.size());
        const size_t end = open < code.size() && code[open] == '(' ? behind_bracket(code, open) : std::string::npos;
        const bool is_whole = end != std::string::npos;
        places.push_back({begin, end, is_whole && is_plain(code, parts_of(code, open + 1, end - 1, ':'))});
        if (is_whole) i = end - 1;
    }
    return places;
}

Result<std::vector<SourceChange>> inline_ptx_of(const std::string& path, std::string_view text,
                                                const std::string& code) {
    std::vector<SourceChange> changes;
    for (const AsmPlace& place : asms_of(code)) {
        ASSIGN_OR_RETURN(SourceChange change, Asm(path, text, code, place).change());
        changes.push_back(std::move(change));
    }
    return changes;
}

}  // namespace verbatim::sandbox
