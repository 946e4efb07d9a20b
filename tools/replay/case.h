// tools/replay/case.h: owns `verbatim replay --case`: one operation with its inputs (tools/kernel/value_case.h), tried
// on everything of ours that computes it.
#pragma once

#include <string>

#include "engine/base/result.h"
#include "tools/program/cli.h"

namespace verbatim::tools {

// Prints what each made of it. True: all are equal to what the case expects. Errors: the file.
Result<bool> replay_case(const std::string& path, OutputFormat format);

}  // namespace verbatim::tools
