// tools/verify/report.h: the output of verifications: for people, for tools, and as a CI's test report.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "reference/records/comparison.h"
#include "tools/program/recorded_run.h"
#include "tools/verify/verify.h"

namespace verbatim::tools {

// {"step", "request", "position", "layer", "op", "element", "recorded", "computed", "ulps", "inputs_equal"}; null where
// a value is unknown.
nlohmann::ordered_json record_difference_json(const records::RecordDifference& difference);
nlohmann::ordered_json compared_json(const records::ComparedCounts& compared);

std::string verify_table(const RecordedRun& run, const std::vector<Verification>& verifications);
// The verification with the worst verdict: different, then not all compared. REQUIRES: not empty.
const Verification& worst_of(const std::vector<Verification>& verifications);
// {"identical", "verdict", "compared", "compared_share", "first_difference"} of worst_of(), and for several schedules
// one object for each under "schedules".
nlohmann::ordered_json verify_json(const RecordedRun& run, const std::vector<Verification>& verifications);
// A test suite with one case per schedule: a difference is a failure, a verdict of not all compared is an error.
std::string verify_junit(const RecordedRun& run, const std::vector<Verification>& verifications);

}  // namespace verbatim::tools
