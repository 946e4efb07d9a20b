// simulator/results_json.h: owns the JSON of simulated runs: what `verbatim simulate --format json` prints, and the
// lines of a sweep.
#pragma once

#include <nlohmann/json.hpp>

#include "simulator/cache_only.h"
#include "simulator/metrics.h"
#include "simulator/run.h"

namespace verbatim {

nlohmann::ordered_json simulate_json(const SimulateRun& run, const Slo& slo);
// The keys of a run with time; what needs time is null.
nlohmann::ordered_json cache_only_json(const CacheOnlyRun& run);
// The tiers of a configuration that has some, for headers.
nlohmann::ordered_json tiers_json(const SimulateConfig& config);

}  // namespace verbatim
