// tools/verify/verify.h: a recorded run, made again and compared, as values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "reference/records/comparison.h"
#include "reference/records/run_again.h"
#include "tools/program/recorded_run.h"

namespace verbatim::tools {

// What came of one schedule.
struct Verification {
    records::Schedule schedule;
    records::Comparison comparison;
    int64_t num_steps = 0;
    int64_t reused_tokens = 0;
    double elapsed_s = 0;
    std::string failure;  // the run ended early, and why; empty: it did not

    [[nodiscard]] records::Verdict verdict() const { return comparison.verdict(); }
};

// Makes the run again under the schedule, compares, and looks for the element where they part. Errors: the schedule, or
// what the executor needs.
[[nodiscard]] Result<Verification> verify_run(const RecordedRun& run, const records::Schedule& schedule,
                                              bool follow_tokens);

// What `verify --all-schedules` tries.
[[nodiscard]] std::vector<records::Schedule> all_schedules(reference::Profile profile);

}  // namespace verbatim::tools
