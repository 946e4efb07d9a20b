#include "simulator/head_bound.h"

#include <gtest/gtest.h>

#include "simulator/cache_run.h"
#include "simulator/eviction_policies.h"
#include "tests/support/trace_run.h"
#include "traces/builder.h"

namespace verbatim::tests {
namespace {

// Conversations take turns: a b c a b c ...; every turn goes on from the one before.
traces::Trace round_robin(int num_conversations, int num_turns) {
    traces::TraceBuilder builder;
    std::vector<traces::RowIndex> before(static_cast<size_t>(num_conversations), traces::kNoRow);
    uint64_t space = 1;
    for (int turn = 0; turn < num_turns; ++turn) {
        for (auto& last : before) {
            traces::Row row;
            row.conversation = builder.add_conversation(fmt::format("c{}", &last - before.data()), std::nullopt);
            row.max_tokens = 10;
            row.arrival_ns = static_cast<int64_t>(space);
            row.from = row.wait_for = last;
            row.take = traces::Take::kAll;
            builder.add_piece({space++, 0, 100, true, false});
            last = builder.add_row(row);
        }
    }
    return builder.finish();
}

int64_t reused_tokens(const traces::Trace& trace, int32_t num_rows, EvictionChoice choice,
                      int32_t num_blocks = 1 << 24) {
    CacheRunConfig config;
    config.cache.pools.num_blocks = num_blocks;
    config.cache.pools.num_state_rows = num_rows;
    config.max_model_len = 1 << 20;
    const auto policy = make_eviction_policy(choice, {.kv_bytes_per_token = 8192,
                                                      .state_bytes = 77'000'000,
                                                      .flops_per_token = 6e9,
                                                      .flops_per_token_squared = 1e4});
    const auto result = run_cache(config, trace, 50'000, *policy);
    EXPECT_TRUE(result.has_value());
    int64_t tokens = 0;
    for (const RowTimes& row : result->rows) tokens += row.reused_tokens;
    return tokens;
}

constexpr EvictionChoice kEvery[] = {EvictionChoice::kLru, EvictionChoice::kLfu, EvictionChoice::kSize,
                                     EvictionChoice::kFlops};

TEST(HeadBound, NoPolicyBeatsIt) {
    for (const traces::Trace& trace : {mooncake_trace(4000), round_robin(10, 20)}) {
        for (const auto& [rows, num_blocks] :
             {std::pair{3, 1 << 24}, {6, 1 << 24}, {20, 1 << 24}, {100, 20'000}, {1000, 100'000}, {1000, 1 << 24}}) {
            const auto bound = head_bound(trace, 50'000, {rows, int64_t{num_blocks} * 16});
            ASSERT_TRUE(bound.has_value());
            for (const EvictionChoice choice : kEvery) {
                EXPECT_LE(reused_tokens(trace, rows, choice, num_blocks), bound->tokens) << rows << " rows";
            }
        }
    }
}

TEST(HeadBound, WithRoomForAllItIsWhatAllHaveInCommon) {
    const traces::Trace trace = round_robin(4, 5);
    const auto bound = head_bound(trace, 50'000, {1000, 0});
    ASSERT_TRUE(bound.has_value());
    // Turn t takes 110 t tokens, of which the last one was drawn and never computed.
    const int64_t common = 4 * (110 + 220 + 330 + 440);
    EXPECT_GE(bound->tokens, common - 4 * 4);
    EXPECT_LE(bound->tokens, common + 4 * 4 * 16);
    EXPECT_GE(bound->tokens, reused_tokens(trace, 1000, EvictionChoice::kLru));
}

// Ten conversations in turn, and rows for a few: each row of state can carry one of them from turn to turn.
TEST(HeadBound, RowsThatAreShortMakeItSmaller) {
    const traces::Trace trace = round_robin(10, 20);
    const int64_t all = head_bound(trace, 50'000, {10, 0})->tokens;
    const int64_t half = head_bound(trace, 50'000, {5, 0})->tokens;
    const int64_t one = head_bound(trace, 50'000, {1, 0})->tokens;
    EXPECT_LT(half, all * 8 / 10);
    EXPECT_LT(one, all * 3 / 10);
    EXPECT_GT(one, all / 20);
    EXPECT_EQ(head_bound(trace, 50'000, {0, 0})->tokens, all) << "no state, no rows";
    const int64_t little_kv = head_bound(trace, 50'000, {10, 5'000})->tokens;
    EXPECT_LT(little_kv, all * 6 / 10) << "ten conversations of up to 2200 tokens";
    EXPECT_GT(little_kv, all / 10);
}

// More than a billion tokens of others lie between two prompts that are the same.
TEST(HeadBound, LongTextsBetweenTakeNothingFromIt) {
    constexpr int32_t kLength = 1'000'000'000;
    traces::TraceBuilder builder;
    for (const uint64_t space : {1, 2, 1}) {
        traces::Row row;
        row.conversation = builder.add_conversation(fmt::format("c{}", space), std::nullopt);
        row.max_tokens = 1;
        builder.add_piece({space, 0, kLength, true, false});
        builder.add_row(row);
    }
    const auto bound = head_bound(builder.finish(), 50'000, {1000, 0});
    ASSERT_TRUE(bound.has_value());
    EXPECT_GE(bound->tokens, kLength - 16);
}

}  // namespace
}  // namespace verbatim::tests
