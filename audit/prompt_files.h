// audit/prompt_files.h: owns what an audit takes from files: prompts, and the lengths of a trace's prompts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/result.h"

namespace verbatim::audit {

// A prompt a line: a text, or a JSON object with `prompt` or `messages` (the first message of the user). Errors: the
// file cannot be read or has no prompt; a line is neither.
[[nodiscard]] Result<std::vector<std::string>> read_prompts(const std::string& path);

// Up to `count` different prompt lengths of a trace (traces/read.h), spread over its rows. Errors: those of the trace.
[[nodiscard]] Result<std::vector<int64_t>> read_lengths(const std::string& path, size_t count);

}  // namespace verbatim::audit
