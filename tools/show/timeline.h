// tools/show/timeline.h: a record as a timeline for Perfetto and Chrome (about:tracing).
#pragma once

#include <string>

#include "reference/records/run_index.h"

namespace verbatim::tools {

// A slice for each step; one for each request, from its first step to its last, with its parts of the steps below it; a
// mark for each attach, preemption, eviction, publication and commit. A step lasts as long as the executor measured, or
// `step_ns` without a measurement.
[[nodiscard]] std::string timeline_json(const records::RunIndex& index, int64_t step_ns);

}  // namespace verbatim::tools
