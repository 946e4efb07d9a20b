// traces/stats.h: owns the statistics of a trace, computed from its rows.
#pragma once

#include <cstdint>
#include <vector>

#include "traces/trace.h"

namespace verbatim::traces {

// Percentiles are nearest-rank: the smallest value that at least p % of the values do not exceed.
struct Distribution {
    int64_t count = 0;
    double mean = 0;
    int64_t min = 0;
    int64_t p50 = 0;
    int64_t p90 = 0;
    int64_t p99 = 0;
    int64_t max = 0;
};
[[nodiscard]] Distribution distribution(std::vector<int64_t> values);

struct TraceStats {
    int64_t requests = 0;
    int64_t events = 0;         // rows that are no requests: forks, rewinds, deletes
    int64_t conversations = 0;  // names
    int64_t sessions = 0;
    int64_t subsequent = 0;  // requests with a predecessor

    Distribution prompt_tokens;  // planned, per request
    Distribution own_tokens;     // prompt tokens that are not taken from the predecessor
    Distribution output_tokens;
    Distribution turns;     // requests per conversation
    Distribution depth;     // requests from the root to this one, inclusive
    Distribution think_ns;  // of rows that start after an answer
    Distribution gap_ns;    // between arrivals of requests

    // Sources of the prompt tokens; the six sum to prompt_total.
    int64_t prompt_total = 0;
    int64_t by_continuation = 0;
    int64_t by_rewrite = 0;
    int64_t by_edit = 0;
    int64_t repeated_within = 0;  // own tokens whose text occurred earlier in the same session (or conversation)
    int64_t repeated_across = 0;  // own tokens whose text occurred earlier only in other sessions
    int64_t new_tokens = 0;
    int64_t output_total = 0;

    double gap_cv = 0;  // coefficient of variation of the gaps: 1 for a Poisson process, more for bursts
    double requests_per_second = 0;
    int64_t busiest_second = 0;  // most requests within one second of the clock
    int64_t duration_ns = 0;     // from the first to the last arrival
    int64_t longest_row = 0;     // prompt + output
    [[nodiscard]] int64_t distinct_tokens() const { return new_tokens + output_total; }  // storage without duplicates
};
[[nodiscard]] TraceStats stats_of(const Trace& trace);

}  // namespace verbatim::traces
