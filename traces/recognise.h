// traces/recognise.h: owns the detection of a trace's format from its first bytes. traces/README.md describes the
// formats.
#pragma once

#include <string>

#include "engine/base/result.h"
#include "traces/read.h"
#include "traces/text_input.h"

namespace verbatim::traces {

// Error: no supported format begins like this.
Result<Format> recognise(const TextInput& input);
// Of a regular file: a pipe can be read once only. Errors: not one, or it cannot be read, or as above.
Result<Format> recognise_file(const std::string& path);

}  // namespace verbatim::traces
