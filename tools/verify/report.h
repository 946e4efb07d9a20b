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
// The one that decides over all: one that differs, else one that was not all compared. REQUIRES: there is one.
const Verification& worst_of(const std::vector<Verification>& verifications);
// {"identical", "verdict", "compared", "compared_share", "first_difference"} of worst_of(), and for several schedules
// one object for each under "schedules".
nlohmann::ordered_json verify_json(const RecordedRun& run, const std::vector<Verification>& verifications);
// A test suite with one case per schedule: a difference is a failure, and what was not all compared an error.
std::string verify_junit(const RecordedRun& run, const std::vector<Verification>& verifications);

}  // namespace verbatim::tools
