// tools/verify/report.h: how verifications are shown: to people, to tools, and to a CI's test report.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "reference/records/comparison.h"
#include "tools/program/recorded_run.h"
#include "tools/verify/verify.h"

namespace verbatim::tools {

// {"step", "request", "position", "layer", "op", "element", "recorded", "computed", "ulps", "inputs_equal"}; null where
// something is not known.
nlohmann::ordered_json record_difference_json(const records::RecordDifference& difference);
nlohmann::ordered_json compared_json(const records::ComparedCounts& compared);

std::string verify_table(const RecordedRun& run, const std::vector<Verification>& verifications);
// {"identical", "compared", "first_difference"}, and for several schedules one object for each under "schedules".
nlohmann::ordered_json verify_json(const RecordedRun& run, const std::vector<Verification>& verifications);
// A test suite with one case per schedule.
std::string verify_junit(const RecordedRun& run, const std::vector<Verification>& verifications);

}  // namespace verbatim::tools
