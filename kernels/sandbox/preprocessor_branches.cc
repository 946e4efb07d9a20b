#include "kernels/sandbox/preprocessor_branches.h"

#include <fmt/format.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <sstream>
#include <vector>

#include "kernels/sandbox/cuda_source.h"

namespace verbatim::sandbox {
namespace {

std::vector<std::string> lines_of(std::string_view text) {
    std::vector<std::string> lines;
    std::istringstream stream{std::string(text)};
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

// What the preprocessor takes for one line: several of the text where a backslash or a comment joins them.
struct LogicalLine {
    std::vector<std::string> lines;
    std::string code;
};

std::vector<LogicalLine> logical_lines_of(std::string_view text) {
    // A line that begins in a comment or in a literal loses this first character.
    constexpr char kBegin = '\x01';
    std::string begun(1, kBegin);
    for (const char c : text) {
        begun += c;
        if (c == '\n') begun += kBegin;
    }
    const std::vector<std::string> lines = lines_of(text), code = lines_of(code_of(begun));
    std::vector<LogicalLine> logical;
    bool is_continued = false;
    for (size_t i = 0; i < lines.size(); ++i) {
        if (!is_continued && code[i].front() == kBegin) logical.emplace_back();
        std::string rest = code[i].substr(1);
        rest.resize(rest.find_last_not_of(" \t\r\v\f") + 1);
        is_continued = rest.ends_with('\\');
        if (is_continued) rest.pop_back();
        logical.back().lines.push_back(lines[i]);
        logical.back().code += rest;
    }
    return logical;
}

// "#  elif x", "%:elif x" -> "elif"; "" if the line is no directive.
std::string directive_of(const std::string& line) {
    constexpr const char* kBlanks = " \t\v\f";
    const size_t hash = line.find_first_not_of(kBlanks);
    if (hash == std::string::npos) return "";
    const size_t length = line[hash] == '#' ? 1 : line.compare(hash, 2, "%:") == 0 ? 2 : 0;
    const size_t begin = line.find_first_not_of(kBlanks, hash + length);
    if (length == 0 || begin == std::string::npos) return "";
    constexpr const char* kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";
    return line.substr(begin, line.find_first_not_of(kLetters, begin) - begin);
}

constexpr size_t kMostDigits = 20;
std::string mark_begin_of(size_t file) { return fmt::format("verbatim_branch_{}_", file); }
// Branch 0: the file's begin.
std::string mark_of(size_t file, size_t branch) { return fmt::format("{}{}_", mark_begin_of(file), branch); }

// Lines of the text: of which branches they are, and whether they are a directive of branches.
struct Line {
    const std::vector<std::string>& lines;
    size_t branch;  // the innermost; 0: of none
    bool is_conditional;
    bool begins_branch;
};

// Calls for each line in order.
void walk(std::string_view text, const std::function<void(const Line& line)>& each) {
    std::vector<size_t> open;
    size_t num_branches = 0;
    for (const LogicalLine& line : logical_lines_of(text)) {
        const std::string word = directive_of(line.code);
        const bool opens = word == "if" || word == "ifdef" || word == "ifndef";
        const bool turns = word == "elif" || word == "elifdef" || word == "elifndef" || word == "else";
        if ((turns || word == "endif") && !open.empty()) open.pop_back();
        each({line.lines, open.empty() ? 0 : open.back(), opens || turns || word == "endif", opens || turns});
        if (opens || turns) open.push_back(++num_branches);
    }
}

}  // namespace

bool has_branches(std::string_view text) {
    bool has = false;
    walk(text, [&](const Line& line) { has |= line.begins_branch; });
    return has;
}

std::string with_branch_marks(std::string_view text, size_t file, std::string_view path) {
    std::string marked = fmt::format("{}\n#line 1 \"{}\"\n", mark_of(file, 0), path);
    size_t num_branches = 0, num_lines = 0;
    walk(text, [&](const Line& line) {
        for (const std::string& one : line.lines) marked += one + "\n";
        num_lines += line.lines.size();
        if (line.begins_branch) marked += fmt::format("{}\n#line {}\n", mark_of(file, ++num_branches), num_lines + 1);
    });
    return marked;
}

bool is_included(size_t file, std::string_view preprocessed) {
    return preprocessed.find(mark_of(file, 0)) != std::string_view::npos;
}

std::string without_dead_branches(std::string_view text, size_t file, std::string_view preprocessed) {
    std::map<size_t, size_t> num_seen;  // of each branch
    const std::string begin = mark_begin_of(file);
    for (size_t at = preprocessed.find(begin); at != std::string_view::npos; at = preprocessed.find(begin, at)) {
        at += begin.size();
        ++num_seen[std::strtoull(std::string(preprocessed.substr(at, kMostDigits)).c_str(), nullptr, 10)];
    }
    const bool is_once = num_seen[0] == 1;
    std::string live;
    walk(text, [&](const Line& line) {
        const bool is_live = line.branch == 0 || num_seen.contains(line.branch);
        const bool stays = line.is_conditional ? !is_once : is_live;
        for (const std::string& one : line.lines) live += (stays ? one : "") + "\n";
    });
    return live;
}

}  // namespace verbatim::sandbox
