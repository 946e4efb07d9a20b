// simulator/plan_objectives.h: objectives for a whole trace, such as "p99:ttft=2s": 99 of 100 answered requests have
// their first token within two seconds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "simulator/metrics.h"
#include "simulator/trace_driver.h"

namespace verbatim {

enum class Latency : uint8_t { kTtft, kTpot, kE2e };
[[nodiscard]] const char* name(Latency latency);

struct Objective {
    Latency latency = Latency::kTtft;
    double percentile = 99;  // above 0, at most 100; 0: the mean
    int64_t limit_ns = 0;
    friend bool operator==(const Objective&, const Objective&) = default;
};
[[nodiscard]] std::string name(const Objective& objective);  // "p99:ttft"

// "p99:ttft=2s,p50:tpot=20ms,mean:e2e=30s": latencies as in verbatim simulate --slo. Error: another form, a percentile
// out of range, the same objective twice, none.
Result<std::vector<Objective>> parse_objectives(std::string_view text);

// What one request is held against: of several objectives of a latency the longest limit.
[[nodiscard]] Slo slo_of(const std::vector<Objective>& objectives);

struct Measured {
    bool has_value = false;  // some request has such a latency; without one the objective is met
    int64_t value_ns = 0;
    // Of the request at the percentile; of a mean the slowest one.
    size_t row = 0;
    int64_t prompt_tokens = 0;
    int64_t reused_tokens = 0;
    [[nodiscard]] bool keeps(const Objective& objective) const { return !has_value || value_ns <= objective.limit_ns; }
};
// The value at rank ceil(percentile / 100 · n) of the n answered requests that have the latency.
[[nodiscard]] Measured measure(const Objective& objective, std::span<const RowTimes> rows);

}  // namespace verbatim
