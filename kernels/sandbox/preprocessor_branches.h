// kernels/sandbox/preprocessor_branches.h: owns which parts of CUDA source the preprocessor leaves out: only what is
// compiled is translated, and may be refused (kernels/sandbox/cuda_source.h). The preprocessor itself says it: a mark
// behind each #if, #elif and #else is in its output or is not.
#pragma once

#include <string>
#include <string_view>

namespace verbatim::sandbox {

// Whether the text has an #if.
bool has_branches(std::string_view text);

// The text with a mark before the first line, and one behind each directive that begins a branch; #line keeps the
// numbers of the lines and names `path`. `file`: another number for each file whose output is looked at together.
std::string with_branch_marks(std::string_view text, size_t file, std::string_view path);

// Whether the preprocessor's output has the mark of the file's begin.
bool is_included(size_t file, std::string_view preprocessed);

// The text with blank lines instead of those of branches whose marks are not in the preprocessor's output, and, in a
// file that is included once, instead of the directives themselves.
std::string without_dead_branches(std::string_view text, size_t file, std::string_view preprocessed);

}  // namespace verbatim::sandbox
