// tools/program/verify_run.h: repeats and compares a recorded run, as values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "reference/records/comparison.h"
#include "reference/records/run_again.h"
#include "tools/program/recorded_run.h"

namespace verbatim::tools {

// The result of one schedule.
struct Verification {
    records::Schedule schedule;
    records::Comparison comparison;
    int64_t num_steps = 0;
    int64_t reused_tokens = 0;
    double elapsed_s = 0;
    std::string failure;  // why the run ended early; empty: it did not

    [[nodiscard]] records::Verdict verdict() const { return comparison.verdict(); }
};

// Repeats the run under the schedule, compares, and finds the first different element. Errors: the schedule, or a
// requirement of the executor.
[[nodiscard]] Result<Verification> verify_run(const RecordedRun& run, const records::Schedule& schedule,
                                              bool follow_tokens);

// The schedules of `verify --all-schedules`.
[[nodiscard]] std::vector<records::Schedule> all_schedules(reference::Profile profile, bool quantised = false);

}  // namespace verbatim::tools
