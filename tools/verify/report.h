// tools/verify/report.h: the output of verifications: for people, for tools, and as a CI's test report.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/program/recorded_run.h"
#include "tools/program/verify_run.h"

namespace verbatim::tools {

std::string verify_table(const RecordedRun& run, const std::vector<Verification>& verifications);
// The verification with the worst verdict: different, then not all compared. REQUIRES: not empty.
const Verification& worst_of(const std::vector<Verification>& verifications);
// {"identical", "verdict", "compared", "compared_share", "first_difference"} of worst_of(), and for several schedules
// one object for each under "schedules".
nlohmann::ordered_json verify_json(const RecordedRun& run, const std::vector<Verification>& verifications);
// A test suite with one case per schedule: a difference is a failure, a verdict of not all compared is an error.
std::string verify_junit(const RecordedRun& run, const std::vector<Verification>& verifications);

}  // namespace verbatim::tools
