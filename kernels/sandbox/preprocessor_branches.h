// kernels/sandbox/preprocessor_branches.h: owns which parts of CUDA source the preprocessor leaves out: only what is
// compiled is translated, and may be refused (kernels/sandbox/cuda_source.h). The preprocessor itself says it: a mark
// behind each #if, #elif and #else is in its output or is not.
#pragma once

#include <string>
#include <string_view>

namespace verbatim::sandbox {

// The text with a mark, on a line between, behind each directive that begins a branch. `file`: another number for each
// file whose output is looked at together. Empty: there are no branches.
std::string with_branch_marks(std::string_view text, size_t file);

// The text with blank lines instead of those of branches whose marks are not in the preprocessor's output.
std::string without_dead_branches(std::string_view text, size_t file, std::string_view preprocessed);

}  // namespace verbatim::sandbox
