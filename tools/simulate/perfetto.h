// tools/simulate/perfetto.h: a simulation's steps as a trace that Perfetto and Chrome (about:tracing) show.
#pragma once

#include <string>

#include "tools/simulate/run.h"

namespace verbatim::tools {

// A slice for each step that computed something; counters of running and waiting requests and of used memory beside
// them. Times in microseconds with three digits, as the format wants them. REQUIRES: the run recorded its steps.
std::string perfetto_json(const SimulateRun& run);

}  // namespace verbatim::tools
