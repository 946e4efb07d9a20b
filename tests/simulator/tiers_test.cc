#include "simulator/tiers.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <limits>

#include "simulator/cache_run.h"
#include "simulator/eviction_policies.h"
#include "simulator/simulation.h"
#include "tests/support/trace_run.h"
#include "traces/builder.h"
#include "traces/generate.h"

namespace verbatim::tests {
namespace {

using testing::ElementsAre;

constexpr int64_t kBlockBytes = 40;
constexpr int64_t kRowBytes = 100;
constexpr int64_t kUs = 1000;  // ns

// Blocks of 4 tokens.
CacheConfig cache_of_tier() {
    CacheConfig cache;
    cache.pools.block_size = 4;
    cache.kv_block_bytes = kBlockBytes;
    cache.state_row_bytes = kRowBytes;
    return cache;
}

class TierScene {
public:
    // A byte takes a us, and each read and write 5 us more.
    explicit TierScene(int64_t bytes, TierEviction eviction = TierEviction::kLru, bool is_timed = true)
        : tier({.name = "host", .bytes = bytes, .bytes_per_us = 1, .latency_ns = 5 * kUs}, cache_of_tier(), eviction,
               is_timed) {}

    // The first `length` tokens of a text.
    [[nodiscard]] TokenSeq text(uint64_t space, int64_t length) { return store_.derive(space, 0, length); }
    // What had to go, as (space's first token, length).
    std::vector<int64_t> keep(uint64_t space, int64_t length, int64_t now_ns = 0) {
        Head head;
        head.tokens = text(space, length);
        head.numerics_id = kNumericsId;
        std::vector<Head> gone;
        tier.keep(head, now_ns, gone);
        tier.verify();
        std::vector<int64_t> lengths;
        for (const Head& one : gone) lengths.push_back(one.length());
        return lengths;
    }
    [[nodiscard]] const Head* find(uint64_t space, int64_t length) {
        return tier.find({}, text(space, length + 1), kNumericsId, length);
    }

    Tier tier;

private:
    const std::string kNumericsId = "exact/1";
    TokenStore store_{1000};
};

TEST(Tier, BlocksThatHeadsShareAreKeptAndWrittenOnce) {
    TierScene scene(10'000);
    scene.keep(1, 8);
    EXPECT_EQ(scene.tier.num_bytes(), 100 + 2 * 40);
    scene.keep(1, 13);  // two blocks shared, one that is not, and one token in another
    EXPECT_EQ(scene.tier.num_bytes(), 2 * 100 + 4 * 40);
    scene.keep(1, 6);  // ends inside a block: only the first one is shared
    EXPECT_EQ(scene.tier.num_bytes(), 3 * 100 + 5 * 40);
    scene.keep(2, 8);
    EXPECT_EQ(scene.tier.num_bytes(), 4 * 100 + 7 * 40);
    EXPECT_EQ(scene.tier.counts().bytes_written, 4 * 100 + 7 * 40);
    scene.keep(1, 8);
    EXPECT_EQ(scene.tier.counts().writes, 4);
    EXPECT_EQ(scene.tier.read_bytes(13, 0), 100 + 4 * 40);
    EXPECT_EQ(scene.tier.read_bytes(13, 9), 100 + 2 * 40) << "two of the four blocks are resident";
    ASSERT_NE(scene.find(1, 12), nullptr);
    EXPECT_EQ(scene.find(1, 12)->length(), 8);
    EXPECT_EQ(scene.find(3, 12), nullptr);
}

// Memory is taken for what heads take, whatever the tier could hold.
TEST(Tier, ATierOfAnySizeStartsWithoutABlock) {
    TierScene scene(std::numeric_limits<int64_t>::max() / 2);
    for (uint64_t space = 1; space <= 20; ++space) scene.keep(space, 40);
    EXPECT_EQ(scene.tier.num_bytes(), 20 * (100 + 10 * 40));
    EXPECT_EQ(scene.find(7, 40)->length(), 40);
}

TEST(Tier, ReadsAndWritesTakeTheirTimeOneAfterTheOther) {
    TierScene scene(10'000);
    scene.keep(1, 8);  // 180 bytes: written at 185 us
    const HeadId head = scene.find(1, 8)->id;
    EXPECT_EQ(scene.tier.read_end_ns(head, 180, 0), (185 + 185) * kUs);
    EXPECT_EQ(scene.tier.read(head, 180, 0), 370 * kUs);
    EXPECT_EQ(scene.tier.read(head, 100, 20 * kUs), (370 + 105) * kUs);
    EXPECT_EQ(scene.tier.read(head, 100, 600 * kUs), (600 + 105) * kUs);
    EXPECT_EQ(scene.tier.counts().reads, 3);
    EXPECT_EQ(scene.tier.counts().bytes_read, 380);
    EXPECT_EQ(scene.tier.counts().read_ns, (370 + 455 + 105) * kUs);
    scene.keep(2, 8, 100 * kUs);  // behind the first write: 185 to 370 us
    EXPECT_EQ(scene.tier.read_end_ns(scene.find(2, 8)->id, 100, 700 * kUs), (705 + 105) * kUs);
}

TEST(Tier, TheLeastRecentlyUsedGoesFirst) {
    TierScene scene(3 * 180);
    for (const uint64_t space : {1, 2, 3}) scene.keep(space, 8);
    scene.tier.read(scene.find(1, 8)->id, 180, 0);
    scene.keep(4, 8);
    EXPECT_EQ(scene.find(2, 8), nullptr);
    EXPECT_NE(scene.find(1, 8), nullptr);
    EXPECT_NE(scene.find(4, 8), nullptr);
    EXPECT_EQ(scene.tier.counts().evictions, 1);
    EXPECT_THAT(scene.keep(5, 16), ElementsAre(8, 8)) << "260 bytes take the place of two heads";
}

TEST(Tier, WhatIsLargerThanTheTierIsNotWritten) {
    TierScene scene(200);
    EXPECT_THAT(scene.keep(1, 100), ElementsAre());
    EXPECT_EQ(scene.tier.counts().not_written, 1);
    EXPECT_EQ(scene.tier.num_bytes(), 0);
}

// A token costs the same whatever it saves: the head of most tokens per byte stays, and a head that is worth less than
// all others is not written.
TEST(Tier, ByValueTheLeastValuePerByteGoesFirst) {
    TierScene scene(620, TierEviction::kValue);
    scene.keep(1, 40);  // 500 bytes
    EXPECT_THAT(scene.keep(2, 4), ElementsAre(4)) << "a state for four tokens is not worth its bytes";
    EXPECT_NE(scene.find(1, 40), nullptr);
    EXPECT_EQ(scene.tier.counts().writes, 1);
}

// --- runs

TiersConfig tiers_config(std::vector<TierConfig> tiers, RestorePolicy restore = RestorePolicy::kAlways) {
    TiersConfig config;
    config.tiers = std::move(tiers);
    config.restore = restore;
    config.eviction = TierEviction::kLru;
    return config;
}

// `num_tokens` of text `space` at `arrival_ms`, and an answer of one token.
void add_prompt(traces::TraceBuilder& builder, const char* conversation, uint64_t space, int32_t num_tokens,
                int64_t arrival_ms) {
    traces::Row row;
    row.conversation = builder.add_conversation(conversation, std::nullopt);
    row.arrival_ns = arrival_ms * 1'000'000;
    row.max_tokens = 1;
    builder.add_piece({space, 0, num_tokens, true, false});
    builder.add_row(row);
}

// Conversation a, another one that takes its memory, and a again with 16 tokens more.
traces::Trace three_prompts() {
    traces::TraceBuilder builder;
    add_prompt(builder, "a", 1, 64, 0);
    add_prompt(builder, "b", 2, 64, 10);
    add_prompt(builder, "a", 1, 80, 20);
    return builder.finish();
}

// Of a model whose step takes a millisecond. Memory has so many blocks of 16 tokens.
SimulationResult simulate_in(int32_t num_blocks, const TiersConfig& tiers, const traces::Trace& trace,
                             int32_t max_num_sequences = 256) {
    SimulationConfig config;
    config.engine.scheduler.max_num_sequences = max_num_sequences;
    config.engine.cache.has_state = false;
    config.engine.cache.lookup = LookupMode::kPrefix;
    config.engine.cache.pools.num_blocks = num_blocks;
    config.tiers = tiers;
    config.tiers.cache = config.engine.cache;
    config.tiers.cache.kv_block_bytes = 1000;
    Device device;
    device.memory_bytes_per_s = 1e15;
    device.bf16_flops = 1e18;
    device.step_overhead_ns = 1e6;
    const RooflineTimes kernels(device);
    StepCost cost({.matmuls = {{.n = 1000, .k = 1000}}}, device, kernels);
    LruEviction policy;
    auto result = simulate(config, trace, cost, 50'000, policy);
    EXPECT_TRUE(result.has_value()) << result.error().message;
    return *std::move(result);
}

// The prompts' heads do not fit at the same time.
SimulationResult simulate_three(const TiersConfig& tiers) {
    SimulationResult result = simulate_in(7, tiers, three_prompts());
    EXPECT_EQ(result.driver.served, 3);
    return result;
}

// Four blocks: 4000 us and 1000 us, against a step of 1000 us.
const TierConfig kSlowTier{.name = "host", .bytes = 100'000, .bytes_per_us = 1, .latency_ns = 1000 * kUs};
// The same in 8 us.
const TierConfig kQuickTier{.name = "host", .bytes = 100'000, .bytes_per_us = 1000, .latency_ns = 4 * kUs};

TEST(Tiers, ARequestWaitsForTheHeadThatIsReadForIt) {
    const SimulationResult result = simulate_three(tiers_config({kSlowTier}));
    EXPECT_EQ(result.restores.restores, 1);
    EXPECT_EQ(result.restores.restored_tokens, 64);
    const RowTimes& last = result.driver.times[2];
    EXPECT_EQ(last.reused_tokens, 64);
    EXPECT_EQ(last.restored_tokens, 64);
    EXPECT_EQ(last.due_ns / kUs, 20'000);
    EXPECT_EQ(last.first_token_ns / kUs, 26'000) << "read until 25 ms, then a step";
    ASSERT_EQ(result.tiers.size(), 1u);
    EXPECT_EQ(result.tiers[0].bytes_read, 4000);
    // Of a and of b a head at 64 and one at 63, which has three blocks in common with it.
    EXPECT_EQ(result.tiers[0].writes, 4);
    EXPECT_EQ(result.tiers[0].bytes_written, 2 * (4000 + 1000));
    EXPECT_EQ(result.stats.imported_heads, 1);
}

// A tier with room for about one head, slow reads, and requests that come while others are read.
TEST(Tiers, ATierForOneHeadLeavesNoRequestWaiting) {
    int64_t num_restores = 0;
    for (uint64_t seed = 0; seed < 60; ++seed) {
        const auto trace = traces::generate({.seed = seed,
                                             .conversations = 12,
                                             .rate = 2000,
                                             .first_tokens = {60, 0.5},
                                             .output_tokens = {10, 0.5},
                                             .system_prompt_tokens = 50});
        const TierConfig tier{.name = "host",
                              .bytes = 6000 + 1000 * static_cast<int64_t>(seed % 8),
                              .bytes_per_us = 1,
                              .latency_ns = 1000 * kUs};
        const RestorePolicy restore = seed % 2 == 0 ? RestorePolicy::kAlways : RestorePolicy::kAuto;
        const SimulationResult result = simulate_in(24, tiers_config({tier}, restore), trace, 3);
        EXPECT_GT(result.driver.served, 10) << seed;
        for (const RowTimes& times : result.driver.times) EXPECT_NE(times.outcome, RowOutcome::kNotOver) << seed;
        num_restores += result.restores.restores;
    }
    EXPECT_GT(num_restores, 10);
}

TEST(Tiers, WhatTakesLongerThanComputingIsComputed) {
    const SimulationResult result = simulate_three(tiers_config({kSlowTier}, RestorePolicy::kAuto));
    EXPECT_EQ(result.restores.restores, 0);
    EXPECT_EQ(result.restores.not_worth, 1) << "64 tokens of a step are computed in 1 ms";
    EXPECT_EQ(result.driver.times[2].reused_tokens, 0);
    EXPECT_EQ(result.driver.times[2].first_token_ns / kUs, 21'000);
    EXPECT_EQ(result.stats.not_reused[static_cast<size_t>(NotReused::kSlowToRestore)], 64);

    const SimulationResult quick = simulate_three(tiers_config({kQuickTier}, RestorePolicy::kAuto));
    EXPECT_EQ(quick.restores.restores, 1);
    EXPECT_EQ(quick.driver.times[2].reused_tokens, 64);
    EXPECT_EQ(quick.driver.times[2].first_token_ns / kUs, 21'008);
}

TEST(Tiers, WithPolicyNeverNothingIsRead) {
    const SimulationResult result = simulate_three(tiers_config({kQuickTier}, RestorePolicy::kNever));
    EXPECT_EQ(result.restores, RestoreCounts{});
    EXPECT_EQ(result.driver.times[2].reused_tokens, 0);
    EXPECT_EQ(simulate_three({}).driver.times[2].reused_tokens, 0);
}

TEST(Tiers, WhatLeavesOneTierComesToTheNext) {
    TierConfig small = kQuickTier;
    small.bytes = 4000;  // one head
    TierConfig disk = kSlowTier;
    disk.name = "disk";
    const SimulationResult result = simulate_three(tiers_config({small, disk}));
    EXPECT_EQ(result.restores.restored_tokens, 64);
    ASSERT_EQ(result.tiers.size(), 2u);
    EXPECT_EQ(result.tiers[0].reads, 0);
    EXPECT_EQ(result.tiers[1].reads, 1);
    EXPECT_GT(result.tiers[1].writes, 0);
}

// --- reuse

CacheRunResult run_in(const traces::Trace& trace, EvictionChoice eviction, int32_t num_units,
                      const std::vector<TierConfig>& tiers) {
    CacheRunConfig config;
    config.cache.lookup = LookupMode::kPrefix;
    config.cache.pools.block_size = 16;
    config.cache.pools.num_blocks = num_units * 8;
    config.cache.pools.num_state_rows = num_units;
    config.max_model_len = 1 << 20;
    config.tiers = tiers_config(tiers);
    config.tiers.cache = config.cache;
    config.tiers.cache.kv_block_bytes = 16;
    config.tiers.cache.state_row_bytes = 100;
    if (eviction == EvictionChoice::kValue) {
        config.cache.kv_block_bytes = 16;
        config.cache.state_row_bytes = 100;
        config.cache.budget_bytes = num_units * 200;
        config.tiers.eviction = TierEviction::kValue;
    }
    const auto policy = make_eviction_policy(eviction, {});
    auto result = run_cache(config, trace, 50'000, *policy);
    EXPECT_TRUE(result.has_value()) << result.error().message;
    return *std::move(result);
}

// Without a history of prompts: what it learns of a head that is gone is less than what the head itself would say.
RC_GTEST_PROP(TierProperties, AnUnlimitedTierReusesWhatAnUnlimitedMemoryDoes, ()) {
    const auto seed = *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<uint64_t>(0, 1 << 20)).as("seed");
    const auto eviction = *rc::gen::element(EvictionChoice::kLru, EvictionChoice::kValue).as("eviction");
    const auto trace = traces::generate({.seed = seed,
                                         .conversations = 10,
                                         .rate = 0.5,
                                         .first_tokens = {60, 0.5},
                                         .output_tokens = {30, 0.5},
                                         .system_prompt_tokens = 50});
    const int32_t num_units = *rc::gen::inRange(80, 160).as("units");
    const std::vector<TierConfig> unlimited{{.name = "disk", .bytes = 100'000'000, .bytes_per_us = 1}};
    const CacheRunResult small = run_in(trace, eviction, num_units, {});
    const CacheRunResult tiered = run_in(trace, eviction, num_units, unlimited);
    const CacheRunResult whole = run_in(trace, eviction, 100'000, {});
    RC_LOG() << reused(small) << ' ' << reused(tiered) << ' ' << reused(whole) << ' ' << small.rejected;
    RC_PRE(small.rejected == 0);
    RC_ASSERT(reused(tiered) == reused(whole));
    RC_ASSERT(reused(tiered) >= reused(small));
    RC_ASSERT(tiered.restores.no_room == 0);
    RC_TAG(small.evictions > 0 ? "evicts" : "holds all");
}

TEST(Tiers, MoreMemoryBehindMemoryReusesMore) {
    const traces::Trace trace = mooncake_trace(2000);
    for (const EvictionChoice eviction : {EvictionChoice::kLru, EvictionChoice::kValue}) {
        int64_t before = reused(run_in(trace, eviction, 3000, {}));
        for (const int64_t bytes : {400'000, 1'600'000, 100'000'000}) {
            const CacheRunResult result = run_in(trace, eviction, 3000, {{"host", bytes, 1, 0}});
            EXPECT_GT(reused(result), before) << bytes;
            EXPECT_LE(result.tiers[0].peak_bytes, bytes);
            before = reused(result);
        }
    }
}

}  // namespace
}  // namespace verbatim::tests
