// tests/house/source_text.h: the repository's files, and their text without the parts that a rule ignores.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace verbatim::house {

struct SourceFile {
    std::string path;  // from the repository's root: "engine/base/check.h"
    std::string text;
};

// Violations with their places: "engine/cache/x.cc:12: includes <thread>: ...".
using Violations = std::vector<std::string>;

// Every file of the repository whose path ends in one of `endings`, in order of path; data/, build/ and hidden folders
// (but .ci/) are left out. Throws when a file cannot be read.
std::vector<SourceFile> repository_files(const std::vector<std::string>& endings);

// Source files: .h .cc .cu .inc.
std::vector<SourceFile> source_files();

std::vector<std::string> split_lines(std::string_view text);

// `text` with comments, string and character literals replaced by blanks; lines keep their numbers. With
// `keep_strings`, only comments are replaced (an include's quotes are a string).
std::string blank_comments(std::string_view text, bool keep_strings);

}  // namespace verbatim::house
