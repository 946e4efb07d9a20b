// simulator/cache_run.h: hit rates of the engine's own cache without its scheduler and without time: `--cache-only`.
//
// Rows come one after another, in the order of the trace, and each is over before the next: it attaches to what it
// finds, computes the rest, and leaves the heads that the engine would leave. While it runs, its head and its blocks
// are pinned.
//   R1  reused <= prompt tokens - 1 for every row, and nothing is reused that no earlier row has computed
//   R2  a row that does not fit the empty cache is rejected and leaves nothing
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/result.h"
#include "engine/cache/cache.h"
#include "simulator/trace_driver.h"
#include "traces/trace.h"

namespace verbatim {

struct CacheRunConfig {
    CacheConfig cache;
    int32_t max_checkpoints = 4;
    int64_t max_model_len = 0;
    bool use_cache = true;
};

struct CacheRunResult {
    std::vector<RowTimes> rows;  // without times; of events that are no request: kDone or kRefused
    int64_t rejected = 0;
    int64_t evictions = 0;
    int64_t block_references = 0;  // blocks of all prompts, partial ones included
    int32_t peak_blocks = 0;
    int32_t peak_state_rows = 0;
};

// `policy` is borrowed. Error: the trace has a token outside the vocabulary.
Result<CacheRunResult> run_cache(const CacheRunConfig& config, const traces::Trace& trace, int32_t vocab_size,
                                 EvictionPolicy& policy);

}  // namespace verbatim
