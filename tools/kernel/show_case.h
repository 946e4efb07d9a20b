// tools/kernel/show_case.h: owns `verbatim kernel case`: runs one operation with its inputs
// (kernels/sandbox/value_case.h) on every builtin kernel of it.
#pragma once

#include <string>

#include "engine/base/result.h"
#include "reference/records/verdict.h"
#include "tools/program/cli.h"

namespace verbatim::tools {

// Prints each result, and the share of the kernels that support its sizes. Errors: the file.
Result<records::Verdict> show_case(const std::string& path, OutputFormat format);

}  // namespace verbatim::tools
