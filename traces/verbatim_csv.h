// traces/verbatim_csv.h: owns Verbatim's trace format. traces/README.md describes its columns.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>

#include "engine/base/result.h"
#include "traces/text_input.h"
#include "traces/trace.h"

namespace verbatim::traces {

// At most `limit` rows (0: all). The result passes validate().
Result<Trace> read_verbatim_csv(TextInput input, int64_t limit = 0);

// Canonical: the same trace gives the same bytes, and reading them gives the same trace. REQUIRES: validate(trace)
// returns no problem.
void write_verbatim_csv(const Trace& trace, std::ostream& out);
// The bytes of a file of this name: gzip where it ends in .gz, zstd where it ends in .zst.
Result<std::string> verbatim_csv_bytes(const Trace& trace, std::string_view name);

}  // namespace verbatim::traces
