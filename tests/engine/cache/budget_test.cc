#include "engine/cache/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace verbatim::tests {
namespace {

using ::testing::HasSubstr;

constexpr UnitBytes kHybridUnit{.kv_block = 100, .state_row = 1000, .block_size = 8};

PoolSizes sizes_for(const BudgetRequest& request, const UnitBytes& unit = kHybridUnit) {
    const auto pools = split_budget(request, unit);
    EXPECT_TRUE(pools) << (pools ? "" : pools.error().message);
    return pools.value_or(PoolSizes{});
}

std::string budget_error(const BudgetRequest& request, const UnitBytes& unit = kHybridUnit) {
    const auto pools = split_budget(request, unit);
    return pools ? "" : pools.error().message;
}

PoolSizes shared_sizes(const BudgetRequest& request) {
    return share_budget(request, kHybridUnit).value_or(PoolSizes{});
}

std::string sharing_error(const BudgetRequest& request) {
    const auto pools = share_budget(request, kHybridUnit);
    return pools ? "" : pools.error().message;
}

TEST(Budget, TheTotalIsHalvedBetweenThePools) {
    EXPECT_EQ(sizes_for({.total_bytes = 20'000}),
              (PoolSizes{.block_size = 8, .num_blocks = 100, .num_state_rows = 10}));
}

TEST(Budget, UnitsAreRoundedDown) {
    EXPECT_EQ(sizes_for({.total_bytes = 21'999}),
              (PoolSizes{.block_size = 8, .num_blocks = 109, .num_state_rows = 10}));
}

TEST(Budget, ANamedPoolGetsItsBytesAndTheOtherTheRest) {
    EXPECT_EQ(sizes_for({.total_bytes = 20'000, .kv_bytes = 5'000}),
              (PoolSizes{.block_size = 8, .num_blocks = 50, .num_state_rows = 15}));
    EXPECT_EQ(sizes_for({.total_bytes = 20'000, .state_bytes = 5'000}),
              (PoolSizes{.block_size = 8, .num_blocks = 150, .num_state_rows = 5}));
}

TEST(Budget, WithBothNamedTheTotalDoesNotCount) {
    EXPECT_EQ(sizes_for({.total_bytes = 1, .kv_bytes = 300, .state_bytes = 2'000}),
              (PoolSizes{.block_size = 8, .num_blocks = 3, .num_state_rows = 2}));
}

TEST(Budget, AModelWithOneKindOfLayersGivesThatPoolEverything) {
    EXPECT_EQ(sizes_for({.total_bytes = 20'000}, {.kv_block = 100, .block_size = 8}),
              (PoolSizes{.block_size = 8, .num_blocks = 200}));
    EXPECT_EQ(sizes_for({.total_bytes = 20'000}, {.state_row = 1000, .block_size = 8}),
              (PoolSizes{.block_size = 8, .num_state_rows = 20}));
    EXPECT_EQ(sizes_for({.total_bytes = 0}, {.block_size = 8}), (PoolSizes{.block_size = 8}));
}

TEST(Budget, OneUnitOfEachIsTheLeast) {
    EXPECT_EQ(sizes_for({.kv_bytes = 100, .state_bytes = 1000}),
              (PoolSizes{.block_size = 8, .num_blocks = 1, .num_state_rows = 1}));
    EXPECT_THAT(budget_error({.kv_bytes = 99, .state_bytes = 1000}),
                HasSubstr("KV pool: 99 bytes, one block takes 100"));
    EXPECT_THAT(budget_error({.kv_bytes = 100, .state_bytes = 999}),
                HasSubstr("state pool: 999 bytes, one row takes 1000"));
}

TEST(Budget, WhatIsNamedBeyondTheTotalLeavesNothingForTheOther) {
    EXPECT_THAT(budget_error({.total_bytes = 4'000, .kv_bytes = 5'000}), HasSubstr("state pool: 0 bytes"));
    EXPECT_THAT(budget_error({.total_bytes = 4'000, .state_bytes = 5'000}), HasSubstr("KV pool: 0 bytes"));
}

TEST(Budget, NegativeBytesAreRefused) {
    EXPECT_THAT(budget_error({.total_bytes = -1}), HasSubstr("negative"));
    EXPECT_THAT(budget_error({.total_bytes = 20'000, .kv_bytes = -1}), HasSubstr("negative"));
    EXPECT_THAT(budget_error({.total_bytes = 20'000, .state_bytes = -1}), HasSubstr("negative"));
}

TEST(Budget, MoreUnitsThanAnIdCanNameAreCut) {
    constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
    const PoolSizes pools = sizes_for({.total_bytes = std::numeric_limits<int64_t>::max()},
                                      {.kv_block = 1, .state_row = 1, .block_size = 8});
    EXPECT_EQ(pools.num_blocks, kMost);
    EXPECT_EQ(pools.num_state_rows, kMost);
}

TEST(Budget, UnitsOfOneByteTakeHalfOfTheTotalEach) {
    EXPECT_EQ(sizes_for({.total_bytes = 200}, {.kv_block = 1, .state_row = 1, .block_size = 8}),
              (PoolSizes{.block_size = 8, .num_blocks = 100, .num_state_rows = 100}));
}

TEST(Budget, EachPoolOfASharedBudgetCouldTakeAllOfItUpToALimit) {
    EXPECT_EQ(shared_sizes({.total_bytes = 20'000}),
              (PoolSizes{.block_size = 8, .num_blocks = 200, .num_state_rows = 20}));
    EXPECT_EQ(shared_sizes({.total_bytes = 20'000, .kv_bytes = 5'000}),
              (PoolSizes{.block_size = 8, .num_blocks = 50, .num_state_rows = 20}));
    EXPECT_EQ(shared_sizes({.total_bytes = 20'000, .state_bytes = 3'999}),
              (PoolSizes{.block_size = 8, .num_blocks = 200, .num_state_rows = 3}));
    EXPECT_EQ(shared_sizes({.total_bytes = 20'000, .kv_bytes = 30'000, .state_bytes = 30'000}),
              (PoolSizes{.block_size = 8, .num_blocks = 200, .num_state_rows = 20}))
        << "no limit is above the total";
}

TEST(Budget, ASharedBudgetHoldsABlockAndARowAtLeast) {
    EXPECT_EQ(shared_sizes({.total_bytes = 1'100}),
              (PoolSizes{.block_size = 8, .num_blocks = 11, .num_state_rows = 1}));
    EXPECT_THAT(sharing_error({.total_bytes = 1'099}),
                HasSubstr("a cache of 1099 bytes: one KV block takes 100 and one state row 1000"));
    EXPECT_THAT(sharing_error({.total_bytes = 2'000, .kv_bytes = 0}), HasSubstr("KV pool: 0 bytes"));
    EXPECT_THAT(sharing_error({.total_bytes = 2'000, .state_bytes = 0}), HasSubstr("state pool: 0 bytes"));
    EXPECT_THAT(sharing_error({.total_bytes = -1}), HasSubstr("negative"));
    EXPECT_THAT(sharing_error({.total_bytes = 2'000, .kv_bytes = -1}), HasSubstr("negative"));
    EXPECT_THAT(sharing_error({.total_bytes = 2'000, .state_bytes = -1}), HasSubstr("negative"));
    EXPECT_EQ(share_budget({}, {.block_size = 8}).value_or(PoolSizes{}), (PoolSizes{.block_size = 8}))
        << "a model without layers";
}

TEST(Budget, BreakEvenIsWhereTheKvOfTokensWeighsAsMuchAsARow) {
    EXPECT_EQ(break_even_tokens(kHybridUnit), 80);
    EXPECT_EQ(break_even_tokens({.kv_block = 99, .state_row = 1000, .block_size = 8}), 81);  // rounded up
    EXPECT_EQ(break_even_tokens({.kv_block = 101, .state_row = 1000, .block_size = 8}), 80);
    EXPECT_EQ(break_even_tokens({.kv_block = 7999, .state_row = 1000, .block_size = 8}), 2) << "one byte more";
    EXPECT_EQ(break_even_tokens({.kv_block = 100, .block_size = 8}), 0);
    EXPECT_EQ(break_even_tokens({.state_row = 1000, .block_size = 8}), 0);
}

}  // namespace
}  // namespace verbatim::tests
