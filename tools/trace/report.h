// tools/trace/report.h: the output of `verbatim trace`: tables, JSON, and a self-contained picture.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "traces/hit_rate.h"
#include "traces/read.h"
#include "traces/stats.h"

namespace verbatim::tools {

// A cache of limited capacity, counted by one of two conventions.
struct LimitedRoom {
    std::string room;  // "10 % of the unique blocks", "4 Mi tokens"
    int64_t blocks = 0;
    traces::HitRates rates;
};

struct BlockHits {
    int64_t unique_blocks = 0;
    int64_t lookups = 0;
    traces::HitRates unlimited;
    std::vector<LimitedRoom> limited;       // empty: too many lookups
    std::optional<int64_t> literal_tokens;  // of a trace whose partial blocks have ids
};

// Memory to keep every distinct token and one state row per request.
struct ModelNeed {
    std::string model;
    int64_t kv_bytes = 0;
    int64_t state_bytes = 0;
    int64_t longest_request_bytes = 0;
};

struct TraceReport {
    std::string file;
    traces::ReadReport read;
    traces::TraceStats stats;
    std::optional<BlockHits> hits;  // none: the format has no blocks
    std::vector<ModelNeed> needs;
};

// `file` is the trace's name in messages and titles. Computes everything that the report shows.
TraceReport make_trace_report(const std::string& file, const traces::ReadTrace& trace);

std::string conversion_table(const traces::ReadReport& report, const traces::Trace& trace);
nlohmann::ordered_json conversion_json(const traces::ReadReport& report, const traces::Trace& trace);
std::string trace_table(const TraceReport& report);
nlohmann::ordered_json trace_json(const TraceReport& report);
// A picture of the trace as a whole SVG document.
std::string trace_svg(const TraceReport& report, const traces::Trace& trace);

}  // namespace verbatim::tools
