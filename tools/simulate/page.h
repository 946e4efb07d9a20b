// tools/simulate/page.h: a simulation as one HTML page that needs no network: tables, and pictures of latency, reuse,
// memory and queues.
#pragma once

#include <string>

#include "simulator/metrics.h"
#include "simulator/run.h"

namespace verbatim::tools {

// REQUIRES: the run recorded its steps.
std::string simulate_page(const SimulateRun& run, const Slo& slo);

}  // namespace verbatim::tools
