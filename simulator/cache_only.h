// simulator/cache_only.h: hit rates without timing (`verbatim simulate --cache-only`).
//
// The modes of heads run the engine's cache, row after row (simulator/cache_run.h). `attention` runs the trace's
// blocks (simulator/block_cache.h), where it has some, in the convention of traces/README.md, and the offline bound.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "simulator/block_cache.h"
#include "simulator/head_bound.h"
#include "simulator/metrics.h"
#include "simulator/run.h"
#include "traces/read.h"

namespace verbatim {

struct CacheOnlyRun {
    std::string trace;
    std::string model;
    MemoryPlan memory;
    std::string convention;
    int64_t requests = 0;
    int64_t rejected = 0;
    HitRate whole;
    HitRate steady;
    std::optional<int64_t> evictions;        // of heads
    std::optional<int64_t> reused_tokens;    // of prompts
    std::optional<int64_t> reusable_tokens;  // that an unlimited cache would have reused (Cache::Seen)
    std::optional<OfflineBound> bound;       // of blocks
    std::optional<HeadBound> head_bound;     // of heads by conversation, when --head-bound asks for it
    bool has_head_bound = false;             // the mode has one
    SimulateConfig config;
    RestoreCounts restores;
    std::vector<TierCounts> tiers;
    int64_t block_references = 0;
    double lookups_s = 0;  // without reading the trace
    double wall_s = 0;
    int64_t peak_rss_bytes = 0;
    Digest digest;
};

// REQUIRES: with CacheMode::kAttention the trace was read with its blocks.
Result<CacheOnlyRun> run_cache_only(const SimulateConfig& config, const ModelShape& model, const Device& device,
                                    const std::string& trace_name, const traces::ReadTrace& trace);

}  // namespace verbatim
