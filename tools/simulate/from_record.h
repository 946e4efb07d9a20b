// tools/simulate/from_record.h: `verbatim simulate --from run.rec`: the calls of a recorded run through the engine's
// scheduler again, on an executor that answers as recorded. Its decisions are compared with the record's, and with a
// model's step times those of every request.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "reference/records/format.h"
#include "simulator/run.h"
#include "tools/program/cli.h"

namespace verbatim::tools {

enum class StepTimesFrom : uint8_t { kRecord, kModel };

// |simulated / recorded - 1| over requests; of none, nothing.
struct RequestErrors {
    int64_t num_requests = 0;
    double median = 0;
    double p90 = 0;
    double worst = 0;
    RequestId worst_request{-1};
    double of_median = 0;  // signed: the median's
};

struct FromRecordReport {
    std::string record;
    StepTimesFrom times = StepTimesFrom::kRecord;
    std::string priced_by;  // the device, with the model's times
    int64_t num_steps = 0;  // in the record
    int64_t num_equal = 0;  // of these, with the same plan
    int64_t num_calls = 0;
    std::string first_difference;  // step and what; empty: none
    double recorded_s = 0;         // of all steps
    double simulated_s = 0;
    RequestErrors ttft;  // from the submission to the first token
    RequestErrors e2e;   // and to the last one
};

// Errors: the record or its model; a run that a cost model cannot repeat (two arithmetics, imported heads, failures).
[[nodiscard]] Result<FromRecordReport> simulate_record(const std::string& path, StepTimesFrom times,
                                                       const SimulateConfig& config, const std::string& device);
// What compare_runs() finds: of two records of the same calls.
void compare_runs(const records::Record& recorded, const records::Record& simulated, FromRecordReport& report);

// 0: what was asked was compared, and every step has the recorded plan; 1: one has not; 5: no step was compared, or
// with the model's times no request.
[[nodiscard]] ExitCode from_record_exit_code(const FromRecordReport& report);
[[nodiscard]] std::string from_record_table(const FromRecordReport& report);
[[nodiscard]] nlohmann::ordered_json from_record_json(const FromRecordReport& report);

}  // namespace verbatim::tools
