// tools/simulate/report.h: what a simulation says: tables, and CSV files of requests and steps.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "simulator/cache_only.h"
#include "simulator/kernel_tables.h"
#include "simulator/metrics.h"
#include "simulator/run.h"

namespace verbatim::tools {

std::string simulate_table(const SimulateRun& run, const Slo& slo);
std::string cache_only_table(const CacheOnlyRun& run);

// How far the device's tables are from what was measured, when it is left out.
nlohmann::ordered_json table_check_json(const std::string& device, const std::vector<LeaveOutError>& errors);
std::string table_check_table(const std::string& device, const std::vector<LeaveOutError>& errors);

// One line per row of the trace; one per step that computed something.
std::string requests_csv(const SimulateRun& run, const traces::Trace& trace);
std::string steps_csv(const SimulateRun& run);

}  // namespace verbatim::tools
