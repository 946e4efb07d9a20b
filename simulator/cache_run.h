// simulator/cache_run.h: owns the hit rates of the engine's cache without its scheduler and without timing:
// `--cache-only`.
//
// Rows are processed in trace order, one at a time: a row attaches to the head that it finds, computes the rest, and
// leaves the heads that the engine would leave. Its head and its blocks are pinned meanwhile.
//   R1  reused <= prompt tokens - 1 for every row, and only tokens that an earlier row computed are reused
//   R2  a row that does not fit the empty cache is rejected and leaves nothing
//   R3  a head that the tiers read is there at once
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/result.h"
#include "engine/cache/cache.h"
#include "simulator/tiers.h"
#include "simulator/trace_driver.h"
#include "traces/trace.h"

namespace verbatim {

struct CacheRunConfig {
    CacheConfig cache;
    int32_t max_checkpoints = 4;
    int64_t max_model_len = 0;
    bool use_cache = true;
    TiersConfig tiers;
};

struct CacheRunResult {
    std::vector<RowTimes> rows;  // without times; for events that are no request: kDone or kRefused
    int64_t rejected = 0;
    int64_t evictions = 0;
    int64_t reusable_tokens = 0;   // that an unlimited cache would have reused, as far as it is known (Cache::Seen)
    int64_t block_references = 0;  // blocks of all prompts, partial ones included
    int32_t peak_blocks = 0;
    int32_t peak_state_rows = 0;
    RestoreCounts restores;
    std::vector<TierCounts> tiers;
};

// Borrows `policy`. Error: the trace has a token outside the vocabulary.
Result<CacheRunResult> run_cache(const CacheRunConfig& config, const traces::Trace& trace, int32_t vocab_size,
                                 EvictionPolicy& policy);

}  // namespace verbatim
