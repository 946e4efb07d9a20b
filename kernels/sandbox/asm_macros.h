// kernels/sandbox/asm_macros.h: owns macros in the `asm` of CUDA source. Only the preprocessor knows what they become:
// an `asm` whose text or operands have macros, and each use of a macro that has such an `asm`, is marked, and what the
// preprocessor makes of it takes its place before it is translated (kernels/sandbox/inline_ptx.h).
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace verbatim::sandbox {

// The macros with an `asm` that is no plain literals, and those that use them. `texts`: of all the files.
[[nodiscard]] std::set<std::string> macros_with_asm(const std::vector<std::string_view>& texts);

// The text with marks around what is expanded; no line moves. `num_marked` counts the marks of all files.
[[nodiscard]] std::string with_expansion_marks(std::string_view text, const std::set<std::string>& macros,
                                               size_t& num_marked);

// The marked text with expansions instead of marks, in the line where each begins, and blank lines instead of the
// definitions of `macros`, which nothing uses any more. `preprocessed`: the preprocessor's output of all files.
[[nodiscard]] std::string with_expansions(std::string_view marked, const std::set<std::string>& macros,
                                          std::string_view preprocessed);

}  // namespace verbatim::sandbox
