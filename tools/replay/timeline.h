// tools/replay/timeline.h: a record as a timeline that Perfetto and Chrome (about:tracing) show.
#pragma once

#include <string>

#include "reference/records/run_index.h"

namespace verbatim::tools {

// A slice for each step; one for each request, from its first step to its last, with its shares of the steps below it;
// a mark for each attach, preemption, eviction, publication and commit. A step takes the time that the executor said,
// or `step_ns` where it said none.
[[nodiscard]] std::string timeline_json(const records::RunIndex& index, int64_t step_ns);

}  // namespace verbatim::tools
