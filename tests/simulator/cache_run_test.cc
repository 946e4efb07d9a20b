#include "simulator/cache_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "tests/support/trace_run.h"
#include "traces/builder.h"

namespace verbatim::tests {
namespace {

CacheRunConfig cache_run_config(LookupMode lookup, int32_t num_blocks, int32_t num_rows, int32_t block_size = 16) {
    CacheRunConfig config;
    config.cache.lookup = lookup;
    config.cache.pools.block_size = block_size;
    config.cache.pools.num_blocks = num_blocks;
    config.cache.has_state = num_rows > 0;
    config.cache.pools.num_state_rows = num_rows;
    config.max_model_len = 1 << 20;
    if (lookup == LookupMode::kBlocks) config.cache.keep_turn_heads = num_rows > 0 ? 0 : 1;
    return config;
}

CacheRunResult run(const CacheRunConfig& config, const traces::Trace& trace) {
    LruEviction policy;
    auto result = run_cache(config, trace, 50'000, policy);
    EXPECT_TRUE(result.has_value()) << result.error().message;
    return *std::move(result);
}

constexpr int32_t kPlenty = 1 << 24;

// traces/README.md: 30.73 % of the prompt tokens are taken through continuations and 2.65 % through rewrites. A
// continuation finds all but its seam, a rewrite all but the prompt's last token.
TEST(CacheRun, WithoutALimitHeadsServeWhatTheTraceSays) {
    const traces::Trace trace = mooncake_trace(0);
    int64_t taken = 0;
    int64_t takers = 0;
    for (const traces::Row& row : trace.rows) {
        if (!traces::is_request(row.event) || row.from == traces::kNoRow) continue;
        if (traces::relation(trace, row) == traces::Relation::kEdit) continue;
        taken += traces::planned_take(trace, row);
        ++takers;
    }
    const CacheRunResult result = run(cache_run_config(LookupMode::kConversation, kPlenty, kPlenty), trace);
    // Some go on from turns older than the two newest, which a name has let go.
    EXPECT_GE(reused(result), (taken - takers) * 99 / 100);
    EXPECT_LE(reused(result), taken);
    EXPECT_EQ(reused(result) / 10'000, 4790) << "docs/measurements/engine.md: 47.91 M with time and scheduler";
    EXPECT_EQ(result.rejected, 0);
    EXPECT_EQ(result.evictions, 0);
    for (const RowTimes& row : result.rows) ASSERT_LT(row.reused_tokens, std::max<int64_t>(row.prompt_tokens, 1));
}

TEST(CacheRun, WithoutALimitBlocksServeWhatBlocksOfTheTraceDo) {
    const traces::Trace trace = mooncake_trace(0);
    const CacheRunResult result = run(cache_run_config(LookupMode::kBlocks, kPlenty, 0), trace);
    int64_t prompts = 0;
    for (const RowTimes& row : result.rows) prompts += row.prompt_tokens;
    // 37.4 % by the trace's blocks of 512; ours are of 16 and hold answers, too.
    const double rate = static_cast<double>(reused(result)) / static_cast<double>(prompts);
    EXPECT_GT(rate, 0.374);
    EXPECT_LT(rate, 0.395);
}

TEST(CacheRun, ALimitCostsReuseAndNothingElse) {
    const traces::Trace trace = mooncake_trace(2000);
    int64_t before = -1;
    for (const int32_t num_blocks : {20'000, 60'000, 200'000, 1'000'000}) {
        const CacheRunResult result = run(cache_run_config(LookupMode::kPrefix, num_blocks, 10'000), trace);
        EXPECT_LE(result.peak_blocks, num_blocks);
        EXPECT_EQ(result.rejected, 0);
        EXPECT_GE(reused(result), before) << num_blocks;
        before = reused(result);
    }
    EXPECT_GT(before, 1'000'000);
}

TEST(CacheRun, WhatDoesNotFitTheEmptyCacheIsRejected) {
    const traces::Trace trace = mooncake_trace(300);
    const CacheRunResult result = run(cache_run_config(LookupMode::kConversation, 500, 10), trace);
    EXPECT_GT(result.rejected, 50);
    for (size_t i = 0; i < trace.rows.size(); ++i) {
        const traces::Row& row = trace.rows[i];
        if (!traces::is_request(row.event)) continue;
        const bool fits = (row.prompt_tokens + row.max_tokens + 14) / 16 <= 500;
        EXPECT_EQ(result.rows[i].outcome == RowOutcome::kServed, fits) << i;
    }
}

TEST(CacheRun, BlockAlignedReusesMultiplesOfTheBlock) {
    const CacheRunResult result = run(cache_run_config(LookupMode::kBlocks, 5000, 500, 528), mooncake_trace(2000));
    EXPECT_GT(reused(result), 100'000);
    for (const RowTimes& row : result.rows) EXPECT_EQ(row.reused_tokens % 528, 0);
}

// A prompt of `num_tokens` of text `space`, and one token of answer.
traces::RowIndex add_prompt(traces::TraceBuilder& builder, const char* conversation, uint64_t space,
                            int64_t num_tokens) {
    traces::Row row;
    row.conversation = builder.add_conversation(conversation, std::nullopt);
    row.max_tokens = 1;
    for (int64_t begin = 0; begin < num_tokens; begin += INT32_MAX)
        builder.add_piece({space, begin, static_cast<int32_t>(std::min<int64_t>(INT32_MAX, num_tokens - begin))});
    builder.end_message(/*checkpoint=*/true);
    return builder.add_row(row);
}

void add_fork(traces::TraceBuilder& builder, const char* conversation, traces::RowIndex from) {
    traces::Row row;
    row.event = traces::Event::kFork;
    row.conversation = builder.add_conversation(conversation, std::nullopt);
    row.from = from;
    builder.add_row(row);
}

// Of 2^36 tokens and more: the number of blocks is none that 32 bits hold.
TEST(CacheRun, WhatNeverFitsTakesNothingFromOthers) {
    for (const int64_t num_tokens : {int64_t{16} * 501, (int64_t{1} << 35) + 1600, (int64_t{1} << 36) + 160}) {
        traces::TraceBuilder builder;
        add_prompt(builder, "a", 1, 1600);
        add_prompt(builder, "b", 2, num_tokens);
        add_prompt(builder, "a", 1, 1600);
        CacheRunConfig config = cache_run_config(LookupMode::kConversation, 500, 10);
        config.max_model_len = int64_t{1} << 40;
        const CacheRunResult result = run(config, builder.finish());
        EXPECT_EQ(result.rows[1].outcome, RowOutcome::kRejected) << num_tokens;
        EXPECT_EQ(result.evictions, 0) << num_tokens;
        EXPECT_EQ(result.rows[2].reused_tokens, 1599) << num_tokens;
    }
}

TEST(CacheRun, AForkToAConversationThatIsThereIsRefused) {
    traces::TraceBuilder builder;
    const traces::RowIndex first = add_prompt(builder, "a", 1, 160);
    add_prompt(builder, "b", 2, 160);
    add_fork(builder, "a", first);
    add_fork(builder, "b", first);
    add_fork(builder, "c", first);
    add_prompt(builder, "b", 2, 160);
    add_prompt(builder, "c", 1, 160);
    const CacheRunResult result = run(cache_run_config(LookupMode::kConversation, 500, 50), builder.finish());
    EXPECT_EQ(result.rows[2].outcome, RowOutcome::kRefused);
    EXPECT_EQ(result.rows[3].outcome, RowOutcome::kRefused);
    EXPECT_EQ(result.rows[4].outcome, RowOutcome::kDone);
    EXPECT_EQ(result.rows[5].reused_tokens, 159);
    EXPECT_EQ(result.rows[6].reused_tokens, 159);
}

}  // namespace
}  // namespace verbatim::tests
