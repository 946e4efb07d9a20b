// tools/simulate/perfetto.h: a simulation's steps as a trace that Perfetto and Chrome (about:tracing) show.
#pragma once

#include <string>

#include "simulator/run.h"

namespace verbatim::tools {

// A slice for each step that computed; counters of running and waiting requests and of used memory. Times in
// microseconds with three decimals, as the format requires. REQUIRES: the run recorded its steps.
std::string perfetto_json(const SimulateRun& run);

}  // namespace verbatim::tools
