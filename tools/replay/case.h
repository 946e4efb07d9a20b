// tools/replay/case.h: owns `verbatim replay --case`: one operation with its inputs (tools/kernel/value_case.h), tried
// on everything of ours that computes it.
#pragma once

#include <string>

#include "engine/base/result.h"
#include "reference/records/verdict.h"
#include "tools/program/cli.h"

namespace verbatim::tools {

// Prints what each made of it, and the share of them that takes its sizes. Errors: the file.
Result<records::Verdict> replay_case(const std::string& path, OutputFormat format);

}  // namespace verbatim::tools
