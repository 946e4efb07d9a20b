// What policies decide, in figures, on a recorded trace: exact bits would not show a cache that reuses nothing.
#include <gtest/gtest.h>

#include "simulator/trace_driver.h"
#include "tests/support/null_executor.h"
#include "tests/support/plain_lru.h"
#include "traces/read.h"

namespace verbatim {
namespace {

const traces::Trace& first_part_of_mooncake() {
    static const traces::ReadTrace read =
        *traces::read_trace(VERBATIM_SOURCE_DIR "/traces/data/mooncake_conversation_trace.jsonl.gz", {.limit = 3000});
    return read.trace;
}

EngineStats replay(EvictionPolicy& policy, int32_t num_blocks, int32_t num_state_rows) {
    EngineConfig config;
    config.cache.num_blocks = num_blocks;
    config.cache.num_state_rows = num_state_rows;
    config.scheduler.step_tokens = 8192;
    config.max_model_len = 1 << 20;
    TokenStore store(50000);
    NullExecutor executor;
    NullRecorder recorder;
    Engine engine(config, executor, policy, store, recorder);
    auto requests = traces::RequestMaker::create(first_part_of_mooncake(), store);
    EXPECT_TRUE(requests.has_value());
    TraceDriver driver({.step_ns = 20'000'000}, first_part_of_mooncake(), *requests, engine, store);
    EXPECT_TRUE(driver.run().has_value());
    engine.verify();
    return engine.stats();
}

TEST(Policies, LruReusesAsMuchAsAPlainLruOverHeadsOrMore) {
    for (const auto& [blocks, rows] : {std::pair{60'000, 200}, std::pair{120'000, 200}, std::pair{200'000, 1000}}) {
        SCOPED_TRACE(blocks);
        LruEviction lru;
        PlainLru plain;
        const EngineStats ours = replay(lru, blocks, rows);
        const EngineStats theirs = replay(plain, blocks, rows);
        EXPECT_GT(ours.evictions, 0);
        EXPECT_GT(ours.reused_tokens, 100'000);
        EXPECT_GE(ours.reused_tokens * 100, theirs.reused_tokens * 98) << theirs.reused_tokens;
    }
}

TEST(Policies, NobodyStaysOutForWantOfRoomThatEvictingWouldMake) {
    LruEviction lru;
    const EngineStats stats = replay(lru, 60'000, 100);
    EXPECT_GT(stats.evictions, 1000);
    EXPECT_EQ(stats.steps_without_room, 0);
    EXPECT_EQ(stats.preemptions, 0);
}

}  // namespace
}  // namespace verbatim
