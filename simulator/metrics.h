// simulator/metrics.h: what a run's rows and steps come to.
//
// A percentile p is the value at rank ceil(p * n) of n sorted ones: one that was measured, never one between two.
// Times are those of requests that were answered. The steady state is the second half of the trace's rows, from row
// (number of rows) / 2 on; throughput is given for the whole run.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "simulator/trace_driver.h"

namespace verbatim {

struct Distribution {
    int64_t count = 0;  // 0: the values below mean nothing
    double mean = 0;
    double p50 = 0;
    double p95 = 0;
    double p99 = 0;
};
// The one at rank ceil(part / whole * n) of n; the first one where that is 0. REQUIRES: some values, ascending;
// 0 <= part <= whole, whole above 0.
[[nodiscard]] int64_t at_rank(std::span<const int64_t> sorted, int64_t part, int64_t whole);
// Of times in ns, in seconds.
Distribution distribution_s(std::vector<int64_t> times_ns);

//   block    full blocks reused / blocks of all prompts, partial ones included
//   token    prompt tokens reused / prompt tokens
//   request  mean over the requests of tokens reused / tokens
struct HitRate {
    double block = 0;
    double token = 0;
    double request = 0;
};

// Objectives for a request, in ns; what is not set is not asked.
struct Slo {
    std::optional<int64_t> ttft_ns;
    std::optional<int64_t> tpot_ns;
    std::optional<int64_t> e2e_ns;
    [[nodiscard]] bool any() const { return ttft_ns || tpot_ns || e2e_ns; }
};
// "2s", "50ms", "1.5s", "800us": above 0.
[[nodiscard]] std::optional<int64_t> parse_time_ns(std::string_view text);
// "ttft=2s,tpot=50ms": names ttft, tpot, e2e; units s, ms, us.
Result<Slo> parse_slo(std::string_view text);

struct Metrics {
    int64_t requests = 0;  // answered
    HitRate hit_rate;
    Distribution ttft;         // from when it could be sent to its first token; requests with an answer
    Distribution tpot;         // between tokens, of answers of two and more
    Distribution e2e;          // from when it could be sent to its end
    Distribution client_wait;  // from when its client wanted to send it to when it could
    int64_t requests_in_slo = 0;
};
Metrics metrics_of(std::span<const RowTimes> rows, int32_t block_size, const Slo& slo);

// Times of one request; empty where it has none.
[[nodiscard]] std::optional<int64_t> ttft_ns(const RowTimes& row);
[[nodiscard]] std::optional<int64_t> tpot_ns(const RowTimes& row);
[[nodiscard]] bool is_answered(const RowTimes& row);

}  // namespace verbatim
