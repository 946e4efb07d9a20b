// kernels/sandbox/inline_ptx.h: owns the translation of CUDA source's `asm` to calls of the emulator.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace verbatim::sandbox {

// Text that takes the place of [begin, end) of a source.
struct SourceChange {
    size_t begin, end;
    std::string text;
};

// `asm volatile("..." : outputs : inputs : clobbers)` -> a call, for each of a text. `code`: the text with spaces
// instead of comments and of the contents of literals. Errors name the line and the instruction that is not taken.
Result<std::vector<SourceChange>> inline_ptx_of(const std::string& path, std::string_view text,
                                                const std::string& code);

// An `asm` with its parentheses; plain: its text and the constraints of its operands are literals, without macros.
struct AsmPlace {
    size_t begin, end;
    bool is_plain;
};
[[nodiscard]] std::vector<AsmPlace> asms_of(const std::string& code);

// Whether names have the character.
[[nodiscard]] bool is_of_a_name(char c);

// The place behind the bracket that closes the one at `open`; npos if none does.
[[nodiscard]] size_t behind_bracket(const std::string& code, size_t open);

// Line, from 1, of a place.
[[nodiscard]] size_t line_of(std::string_view text, size_t at);

}  // namespace verbatim::sandbox
