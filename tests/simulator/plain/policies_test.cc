// What policies decide, in figures, on a recorded trace: exact bits would not show a cache that reuses nothing.
#include <gtest/gtest.h>

#include "tests/support/plain_lru.h"
#include "tests/support/trace_run.h"
#include "tests/support/wait_recorder.h"

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

TEST(Policies, NoRequestWaitsForRoomThatEvictionCouldMake) {
    LruEviction lru;
    const EngineStats stats = replay(lru, 60'000, 100);
    EXPECT_GT(stats.evictions, 1000);
    EXPECT_EQ(stats.steps_without_room, 0);
    EXPECT_EQ(stats.preemptions, 0);
}

struct Waits {
    EngineStats stats;
    double mean = 0;
    int64_t longest = 0;
};
Waits waits_of(const traces::Trace& trace, AdmissionOrder admission, int32_t num_blocks, int32_t num_state_rows,
               int32_t max_wait_steps = 100) {
    LruEviction lru;
    WaitRecorder recorder;
    Waits waits;
    waits.stats = run_trace(trace, num_blocks, num_state_rows, lru, recorder, admission, max_wait_steps);
    waits.mean = recorder.mean();
    waits.longest = recorder.percentile(100);
    return waits;
}

TEST(Policies, FewestTokensFirstWaitsLessThanHalfAsLongAndReusesAsMuch) {
    const traces::Trace trace = mooncake_trace(3000);
    for (const auto& [blocks, rows] : {std::pair{60'000, 200}, std::pair{229'000, 390}, std::pair{1 << 26, 1 << 26}}) {
        SCOPED_TRACE(blocks);
        const Waits arrival = waits_of(trace, AdmissionOrder::kArrival, blocks, rows);
        const Waits fewest = waits_of(trace, AdmissionOrder::kFewestTokens, blocks, rows);
        EXPECT_GT(arrival.mean, 1);
        EXPECT_LT(2 * fewest.mean, arrival.mean) << fewest.mean;
        EXPECT_LE(fewest.longest, arrival.longest);
        EXPECT_GT(arrival.stats.reused_tokens, 100'000);
        EXPECT_NEAR(static_cast<double>(fewest.stats.reused_tokens) / static_cast<double>(arrival.stats.reused_tokens),
                    1, 0.01);
    }
}

// More than can be served for as long as rows come: one row waits for all others, unless the bound is there.
TEST(Policies, NoRequestIsOvertakenForLongerThanTheBound) {
    const traces::Trace trace = mooncake_trace(2000, 20);
    const auto waits = [&](AdmissionOrder admission, int32_t bound) {
        return waits_of(trace, admission, 1 << 26, 1 << 26, bound);
    };
    const Waits arrival = waits(AdmissionOrder::kArrival, 100);
    const Waits bounded = waits(AdmissionOrder::kFewestTokens, 100);
    const Waits unbounded = waits(AdmissionOrder::kFewestTokens, 1'000'000);
    EXPECT_LE(bounded.longest, arrival.longest + 100);
    EXPECT_GT(unbounded.longest, arrival.longest + 100) << "nobody would have waited longer";
    EXPECT_LT(bounded.mean, arrival.mean);
}

}  // namespace
}  // namespace verbatim
