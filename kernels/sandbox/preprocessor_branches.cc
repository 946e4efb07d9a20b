#include "kernels/sandbox/preprocessor_branches.h"

#include <fmt/format.h>

#include <functional>
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

// "#  elif x" -> "elif"; "" if the line is no directive.
std::string directive_of(const std::string& line) {
    const size_t hash = line.find_first_not_of(" \t");
    if (hash == std::string::npos || line[hash] != '#') return "";
    const size_t begin = line.find_first_not_of(" \t", hash + 1);
    if (begin == std::string::npos) return "";
    return line.substr(begin, line.find_first_of(" \t(<\"/!", begin) - begin);
}

std::string mark_of(size_t file, size_t branch) { return fmt::format("verbatim_branch_{}_{}_", file, branch); }

// A line of the text: of which branch it is (0: of none), and whether it is a directive of branches.
struct Line {
    const std::string& text;
    std::vector<size_t> branches;  // from the outermost
    bool is_conditional;
    bool begins_branch;  // the last line of such a directive
};

// Calls for each line in order.
void walk(std::string_view text, const std::function<void(const Line& line)>& each) {
    const std::vector<std::string> lines = lines_of(text), code = lines_of(code_of(text));
    std::vector<size_t> open;
    size_t num_branches = 0;
    bool in_conditional = false, begins = false;
    for (size_t i = 0; i < lines.size(); ++i) {
        if (!in_conditional) {
            const std::string word = directive_of(code[i]);
            const bool opens = word == "if" || word == "ifdef" || word == "ifndef";
            const bool turns = word == "elif" || word == "else";
            if ((turns || word == "endif") && !open.empty()) open.pop_back();
            begins = opens || turns;
            in_conditional = begins || word == "endif";
            if (in_conditional) each({lines[i], open, true, begins && !code[i].ends_with('\\')});
            if (begins) open.push_back(++num_branches);
            if (in_conditional) {
                in_conditional = code[i].ends_with('\\');
                continue;
            }
        } else {
            std::vector<size_t> outside = open;
            if (begins) outside.pop_back();
            in_conditional = code[i].ends_with('\\');
            each({lines[i], outside, true, begins && !in_conditional});
            continue;
        }
        each({lines[i], open, false, false});
    }
}

}  // namespace

std::string with_branch_marks(std::string_view text, size_t file) {
    std::string marked;
    size_t num_branches = 0;
    walk(text, [&](const Line& line) {
        marked += line.text + "\n";
        if (line.begins_branch) marked += mark_of(file, ++num_branches) + "\n";
    });
    return num_branches == 0 ? "" : marked;
}

std::string without_dead_branches(std::string_view text, size_t file, std::string_view preprocessed) {
    std::string live;
    walk(text, [&](const Line& line) {
        bool is_live = true;
        for (const size_t branch : line.branches)
            is_live = is_live && preprocessed.find(mark_of(file, branch)) != std::string_view::npos;
        live += (is_live || line.is_conditional ? line.text : "") + "\n";
    });
    return live;
}

}  // namespace verbatim::sandbox
