// tests/support/trace_run.h: runs a recorded trace through the engine without computation, for its policies' decisions.
#pragma once

#include <cstdint>
#include <utility>

#include "engine/base/check.h"
#include "simulator/cache_run.h"
#include "simulator/trace_driver.h"
#include "tests/support/null_executor.h"
#include "traces/read.h"

namespace verbatim {

// The first `limit` rows of the Mooncake conversation trace; 0: all. Arrivals are `rate_scale` times as fast.
inline traces::Trace mooncake_trace(int64_t limit, double rate_scale = 1) {
    traces::ReadOptions options{.limit = limit};
    options.rate_scale = rate_scale;
    auto read = traces::read_trace(VERBATIM_SOURCE_DIR "/traces/data/mooncake_conversation_trace.jsonl.gz", options);
    CHECK(read.has_value(), "{}", read.error().message);
    return std::move(read->trace);
}

// Prompt tokens of all rows.
inline int64_t reused(const CacheRunResult& result) {
    int64_t tokens = 0;
    for (const RowTimes& row : result.rows) tokens += row.reused_tokens;
    return tokens;
}

// 8192 tokens and 20 ms a step. Verifies the engine at the end.
inline EngineStats run_trace(const traces::Trace& trace, int32_t num_blocks, int32_t num_state_rows,
                             EvictionPolicy& policy, Recorder& recorder,
                             AdmissionOrder admission = AdmissionOrder::kArrival, int32_t max_wait_steps = 100) {
    EngineConfig config;
    config.cache.pools.num_blocks = num_blocks;
    config.cache.pools.num_state_rows = num_state_rows;
    config.scheduler.step_tokens = 8192;
    config.scheduler.admission = admission;
    config.scheduler.max_wait_steps = max_wait_steps;
    config.max_model_len = 1 << 20;
    TokenStore store(50000);
    NullExecutor executor;
    Engine engine(config, executor, policy, store, recorder);
    auto requests = traces::RequestMaker::create(trace, store);
    CHECK(requests.has_value(), "{}", requests.error().message);
    TraceDriver driver({.step_ns = 20'000'000}, trace, *requests, engine, store);
    const auto report = driver.run();
    CHECK(report.has_value(), "{}", report.error().message);
    engine.verify();
    return engine.stats();
}

}  // namespace verbatim
