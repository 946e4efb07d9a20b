// The configuration of a run under another schedule, and the description of a run that was made again.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "reference/records/run_again.h"
#include "tests/reference/records/record_scene.h"

namespace verbatim::tests {
namespace {

using namespace records;

RunDescription description() {
    RunDescription run;
    run.engine.cache.pools = {.block_size = 4, .num_blocks = 96, .num_state_rows = 8};
    run.engine.scheduler.step_tokens = 16;
    run.engine.max_model_len = 256;
    return run;
}

Schedule schedule_of(const std::vector<std::string>& words) {
    const auto schedule = parse_schedule(words);
    CHECK(schedule.has_value());
    return *schedule;
}

EngineConfig config_of(const RunDescription& run, const std::vector<std::string>& words) {
    const auto config = config_under(run, schedule_of(words));
    CHECK(config.has_value(), "{}", config ? "" : config.error().message);
    return *config;
}

// Blocks of that size have at least the slots that there were, and accept the longest request that was accepted.
TEST(RecordSchedule, BlocksOfAnotherSizeAcceptTheSameRequests) {
    for (const auto& [size, num_blocks] :
         {std::pair{1, 384}, {3, 128}, {4, 96}, {5, 77}, {100, 5}, {128, 4}, {379, 3}}) {
        const PoolSizes pools = config_of(description(), {fmt::format("blocks={}", size)}).cache.pools;
        EXPECT_EQ(pools.block_size, size);
        EXPECT_EQ(pools.num_blocks, num_blocks) << size;
        EXPECT_EQ(pools.num_state_rows, 8);
    }
}

TEST(RecordSchedule, ABudgetGrowsWhereItsLongestRequestWouldNotFit) {
    RunDescription run = description();
    CacheConfig& cache = run.engine.cache;
    cache.state_row_bytes = 100;
    const auto with_blocks = [&](int size) {
        const CacheConfig made = config_of(run, {fmt::format("blocks={}", size)}).cache;
        return std::pair{made.kv_block_bytes, made.budget_bytes};
    };
    cache.kv_block_bytes = 1000;
    EXPECT_EQ(with_blocks(6), std::pair(int64_t{1500}, int64_t{0})) << "there is none";
    cache.budget_bytes = 10100;  // ten blocks, and a row of the state
    EXPECT_EQ(with_blocks(6), std::pair(int64_t{1500}, int64_t{100 + 7 * 1500}));
    EXPECT_EQ(with_blocks(3), std::pair(int64_t{750}, int64_t{10100})) << "it is enough";
    cache.kv_block_bytes = 1001;
    cache.budget_bytes = 10110;
    EXPECT_EQ(with_blocks(5), std::pair(int64_t{1252}, int64_t{100 + 9 * 1252}));
    cache.pools.num_blocks = 5;
    EXPECT_EQ(with_blocks(5), std::pair(int64_t{1252}, int64_t{10110})) << "no request is longer than the pool";
    cache.pools.num_blocks = 96;
    cache.has_state = false;
    cache.budget_bytes = 10010;
    EXPECT_EQ(with_blocks(5), std::pair(int64_t{1252}, int64_t{9 * 1252}));
    cache.kv_block_bytes = 0;
    EXPECT_EQ(with_blocks(5), std::pair(int64_t{0}, int64_t{10010})) << "blocks weigh nothing";
    cache.has_state = true;
    cache.state_row_bytes = 2000;
    cache.kv_block_bytes = 1000;
    cache.budget_bytes = 12000;
    EXPECT_EQ(with_blocks(6), std::pair(int64_t{1500}, int64_t{2000 + 7 * 1500})) << "ten blocks besides the row";
}

TEST(RecordSchedule, WindowsAreThoseOfTheRequestsUnderIt) {
    RunDescription run = description();
    run.engine.scheduler.max_window = 5;
    run.engine.scheduler.paced_windows = true;
    run.engine.scheduler.max_state_lag_tokens = 2;
    const auto scheduled = [&](const std::vector<std::string>& words) {
        const SchedulerConfig& scheduler = config_of(run, words).scheduler;
        return fmt::format("windows of {}{}, {} verify, {} behind, {} sequences, steps of {}, {}", scheduler.max_window,
                           scheduler.paced_windows ? " paced" : "", scheduler.verify_tokens,
                           scheduler.max_state_lag_tokens, scheduler.max_num_sequences, scheduler.step_tokens,
                           name(scheduler.admission));
    };
    const int sequences = run.engine.scheduler.max_num_sequences;
    EXPECT_EQ(scheduled({}),
              fmt::format("windows of 5 paced, 0 verify, 2 behind, {} sequences, steps of 16, arrival", sequences));
    EXPECT_EQ(scheduled({"batch=3"}), "windows of 1, 0 verify, 0 behind, 3 sequences, steps of 16, arrival");
    EXPECT_EQ(scheduled({"batch=3", "windows=7", "admission=fewest-tokens"}),
              "windows of 7, 0 verify, 0 behind, 3 sequences, steps of 16, fewest-tokens");
    EXPECT_EQ(scheduled({"batch=3", "policy=verify"}),
              "windows of 8, 4 verify, 0 behind, 3 sequences, steps of 16, arrival");
    EXPECT_EQ(scheduled({"batch=3", "chunks=3", "policy=verify"}),
              "windows of 8, 1 verify, 0 behind, 3 sequences, steps of 3, arrival");
    run.engine.scheduler.verify_tokens = 1;
    EXPECT_EQ(scheduled({"batch=3", "policy=verify"}),
              "windows of 5, 4 verify, 0 behind, 3 sequences, steps of 16, arrival");
    EXPECT_EQ(scheduled({"batch=3", "policy=exact"}),
              "windows of 1, 0 verify, 0 behind, 3 sequences, steps of 16, arrival");
    run.policy = "verify";
    EXPECT_EQ(scheduled({"batch=3"}), "windows of 5, 4 verify, 0 behind, 3 sequences, steps of 16, arrival");
}

TEST(RecordSchedule, WindowsAndLagsHaveABound) {
    RunDescription run = description();
    run.engine.scheduler.step_tokens = 256;
    EXPECT_TRUE(config_under(run, schedule_of({"windows=128"})));
    EXPECT_FALSE(config_under(run, schedule_of({"windows=129"})));
    run.engine.scheduler.max_state_lag_tokens = 128;
    EXPECT_TRUE(config_under(run, {}));
    run.engine.scheduler.max_state_lag_tokens = 129;
    const auto lagging = config_under(run, {});
    ASSERT_FALSE(lagging);
    EXPECT_EQ(lagging.error().message, "as recorded: rows 129 tokens behind are too many");
}

TEST(RecordSchedule, TextIsParsedToTheSameSchedule) {
    const std::vector<std::string> words = {"batch=1",   "chunks=2",          "cache=off",  "blocks=3",
                                            "windows=4", "admission=arrival", "policy=lfu", "policy=verify"};
    EXPECT_EQ(to_string(schedule_of(words)), fmt::format("{}", fmt::join(words, " ")));
    EXPECT_EQ(schedule_of({"policy=exact"}).requests, "exact");
    RunDescription run;
    run.policy = "verify";
    EXPECT_EQ(requests_under(run, {}), "verify");
    EXPECT_EQ(requests_under(run, schedule_of({"policy=exact"})), "exact");
}

TEST(RecordSchedule, ARunThatIsMadeAgainDescribesItself) {
    const RecordScene scene;
    const Record record = scene.record(DigestLevel::kNone);
    std::string policy;
    int num_ends = 0;
    RunAgainOptions options = scene.again(scene.cpu(), DigestLevel::kHeads);
    options.executor = "another";
    options.isa = "avx2";
    options.make_policy = [&](const std::string& name) -> Result<std::unique_ptr<EvictionPolicy>> {
        policy = name;
        return std::make_unique<LruEviction>();
    };
    options.at_end = [&](const Engine&) { ++num_ends; };
    const auto made = run_again(record, options);
    ASSERT_TRUE(made);
    EXPECT_EQ(num_ends, 1);
    EXPECT_EQ(policy, "lru");
    EXPECT_EQ(made->run.program, "a test");
    EXPECT_EQ(made->run.executor, "another");
    EXPECT_EQ(made->run.isa, "avx2");
    EXPECT_EQ(made->run.eviction, "lru");
    EXPECT_EQ(made->run.digests, DigestLevel::kHeads);
    EXPECT_EQ(made->run.policy, "");
    const auto executor = scene.cpu()(scene.config, false);
    EXPECT_EQ(made->run.numerics, (*executor)->numerics_id());
    EXPECT_EQ(made->run.ordinary_numerics, (*executor)->ordinary_numerics_id());
    options.schedule = schedule_of({"batch=1", "policy=lfu", "policy=exact"});
    const auto other = run_again(record, options);
    ASSERT_TRUE(other);
    EXPECT_EQ(policy, "lfu");
    EXPECT_EQ(other->run.eviction, "lfu");
    EXPECT_EQ(other->run.policy, "exact");
    EXPECT_EQ(other->run.engine.scheduler.max_num_sequences, 1);
}

}  // namespace
}  // namespace verbatim::tests
