// What policies decide, in figures, on a recorded trace: exact bits would not show a cache that reuses nothing.
#include <gtest/gtest.h>

#include "tests/support/plain_lru.h"
#include "tests/support/trace_run.h"

namespace verbatim {
namespace {

EngineStats replay(EvictionPolicy& policy, int32_t num_blocks, int32_t num_state_rows) {
    static const traces::Trace trace = mooncake_trace(3000);
    NullRecorder recorder;
    return run_trace(trace, num_blocks, num_state_rows, policy, recorder);
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
