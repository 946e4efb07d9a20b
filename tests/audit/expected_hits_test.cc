// The canary of a prefix cache: a trace's hits by the server and by the simulator.
#include "audit/expected_hits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/audit/fake_server.h"
#include "traces/read.h"

namespace verbatim::audit {
namespace {

using testing::HasSubstr;
using tests::FakeServer;
using tests::FakeServerConfig;

// Three requests that share a beginning, and one that shares none; an id is 512 tokens in the file, 32 here.
const char* kTrace =
    R"({"timestamp": 0, "input_length": 2000, "output_length": 8, "hash_ids": [1, 2, 3, 4]}
{"timestamp": 1000, "input_length": 2000, "output_length": 8, "hash_ids": [1, 2, 3, 5]}
{"timestamp": 2000, "input_length": 1900, "output_length": 8, "hash_ids": [1, 2, 6, 7]}
{"timestamp": 3000, "input_length": 1100, "output_length": 8, "hash_ids": [8, 9, 10]}
)";

HitsResult hits_of(FakeServer& server, HitsConfig config = {}, uint64_t seed = 7) {
    traces::ReadOptions options;
    options.tokens_per_id = 32;
    const auto trace = traces::read_trace_text("trace.jsonl", kTrace, options);
    EXPECT_TRUE(trace.has_value()) << trace.error().message;
    const auto info = discover(server, {});
    EXPECT_TRUE(info.has_value());
    Runner runner({.server = &server}, *info);
    return expect_hits(trace->trace, *info, runner, config, seed);
}

HitsResult hits_of(FakeServerConfig server_config, HitsConfig config = {}) {
    FakeServer server(std::move(server_config));
    return hits_of(server, config);
}

TEST(ExpectedHits, AreReachedByACacheOfBlocks) {
    const HitsResult result = hits_of({});
    EXPECT_EQ(result.rows.size(), 4u);
    EXPECT_GT(result.expected, 100);
    EXPECT_GE(result.reported, result.expected);
    EXPECT_TRUE(result.holds());
}

TEST(ExpectedHits, OfAnEarlierReplayShowNothing) {
    FakeServer server;
    EXPECT_EQ(hits_of(server).from_before, 0);
    const HitsResult again = hits_of(server);
    EXPECT_GT(again.from_before, again.expected);
    EXPECT_TRUE(again.is_of_earlier_run());
    EXPECT_FALSE(again.has_compared());
    const HitsResult of_other_words = hits_of(server, {}, 8);
    EXPECT_EQ(of_other_words.from_before, 0);
    EXPECT_TRUE(of_other_words.has_compared());
    EXPECT_TRUE(of_other_words.holds());
}

// What the server knew from elsewhere does not stand in for what it lost.
TEST(ExpectedHits, DoNotCountWhatTheReplayHadNotSent) {
    HitsResult result{.expected = 100, .reported = 100, .from_before = 8, .tolerance = 0.1};
    EXPECT_TRUE(result.has_compared());
    EXPECT_TRUE(result.holds());
    result.reported = 97;
    EXPECT_FALSE(result.holds());
}

TEST(ExpectedHits, AreMissedByAServerThatReusesNothing) {
    const HitsResult result = hits_of({.caches = false});
    EXPECT_EQ(result.reported, 0);
    EXPECT_GT(result.expected, 100);
    EXPECT_FALSE(result.holds());
}

TEST(ExpectedHits, AreFewerInASmallCache) {
    HitsConfig small;
    small.room_tokens = 32;
    EXPECT_LT(hits_of({}, small).expected, hits_of({}).expected);
}

TEST(ExpectedHits, AreNotTriedWhereReuseIsNotReported) {
    const HitsResult result = hits_of({.reports_cached = false});
    EXPECT_FALSE(result.is_reported);
    EXPECT_THAT(result.problem, HasSubstr("does not tell"));
    EXPECT_TRUE(hits_of({.reports_cached = false, .has_metrics = true}).holds());
}

TEST(ExpectedHits, LeaveOutWhatIsLongerThanTheServerTakes) {
    const HitsResult result = hits_of({.max_model_len = 110});
    EXPECT_GT(result.num_skipped, 0);
    EXPECT_TRUE(result.problem.empty());
}

}  // namespace
}  // namespace verbatim::audit
