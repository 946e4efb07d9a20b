// tools/sweep/plot.h: the results of a sweep as one HTML page that needs no network: hit rate over memory, and the time
// to the first token and throughput over the rate, a line for every cache mode and policy.
#pragma once

#include <string>

#include "engine/base/result.h"

namespace verbatim::tools {

// Of a result file's points, all of them or those that are done. Error: no result file, or one without points.
Result<std::string> sweep_page(const std::string& path);

}  // namespace verbatim::tools
