#include "engine/cache/id_pool.h"

#include <gtest/gtest.h>

#include <vector>

namespace verbatim {
namespace {

using Runs = std::vector<BlockRun>;

BlockRun run(int32_t first, int32_t count) { return {BlockId{first}, count}; }

TEST(IdPool, AllocatesTheLowestIdsInAsFewRunsAsTheyAllow) {
    BlockPool pool(10);
    EXPECT_EQ(*pool.allocate(4), Runs{run(0, 4)});
    pool.release(run(1, 2));
    EXPECT_EQ(*pool.allocate(3), (Runs{run(1, 2), run(4, 1)}));
    EXPECT_EQ(pool.num_free(), 5);
    BlockPool large(200);
    EXPECT_EQ(*large.allocate(150), Runs{run(0, 150)});
}

TEST(IdPool, AnAllocationThatDoesNotFitChangesNothing) {
    BlockPool pool(4);
    ASSERT_TRUE(pool.allocate(3));
    EXPECT_FALSE(pool.allocate(2));
    EXPECT_EQ(pool.num_free(), 1);
    EXPECT_EQ(*pool.allocate(1), Runs{run(3, 1)});
}

TEST(IdPool, AllocatingNothingGivesNoRuns) {
    BlockPool pool(0);
    EXPECT_EQ(*pool.allocate(0), Runs{});
    EXPECT_FALSE(pool.allocate(1));
}

TEST(IdPool, AnAllocationGoesOnAfterAUnitAsFarAsWhatFollowsIsFree) {
    BlockPool pool(10);
    ASSERT_TRUE(pool.allocate(10));
    pool.release(run(0, 2));
    pool.release(run(5, 2));
    EXPECT_EQ(*pool.allocate(1, BlockId{4}), Runs{run(5, 1)});
    EXPECT_EQ(*pool.allocate(2, BlockId{5}), (Runs{run(6, 1), run(0, 1)}));
    EXPECT_EQ(*pool.allocate(1, BlockId{8}), Runs{run(1, 1)});  // what follows is used
    pool.release(run(3, 4));
    EXPECT_EQ(*pool.allocate(2, BlockId{4}), Runs{run(5, 2)});  // from the middle of a free run
    EXPECT_EQ(*pool.allocate(2, BlockId{9}), Runs{run(3, 2)});  // nothing follows
}

TEST(IdPool, FreedRunsMergeWithBothNeighbours) {
    BlockPool pool(6);
    ASSERT_TRUE(pool.allocate(6));
    pool.release(run(0, 2));
    pool.release(run(4, 2));
    pool.release(run(2, 2));
    EXPECT_EQ(*pool.allocate(6), Runs{run(0, 6)});
}

TEST(IdPool, WhatAStepMayStillWriteIsFencedUntilTheStepIsComplete) {
    BlockPool pool(2);
    ASSERT_TRUE(pool.allocate(2));
    pool.release(run(0, 1), 7);
    EXPECT_EQ(pool.num_fenced(), 1);
    EXPECT_FALSE(pool.allocate(1));
    pool.complete_step(6);
    EXPECT_FALSE(pool.allocate(1));
    pool.complete_step(7);
    EXPECT_EQ(pool.num_fenced(), 0);
    EXPECT_EQ(*pool.allocate(1), Runs{run(0, 1)});
}

TEST(IdPool, CompletingAStepFreesWhatThatAndEarlierStepsFenced) {
    BlockPool pool(3);
    ASSERT_TRUE(pool.allocate(3));
    for (const int32_t step : {2, 0, 1}) pool.release(run(step, 1), step);
    pool.complete_step(1);
    EXPECT_EQ(pool.num_free(), 2);
    EXPECT_EQ(pool.num_fenced(), 1);
    pool.complete_step(2);
    EXPECT_EQ(pool.num_free(), 3);
}

TEST(IdPool, WhatOnlyCompleteStepsHaveWrittenIsFreeAtOnce) {
    BlockPool pool(2);
    pool.complete_step(4);
    ASSERT_TRUE(pool.allocate(2));
    pool.release(run(0, 1), 4);
    pool.release(run(1, 1));
    EXPECT_EQ(pool.num_free(), 2);
}

TEST(IdPoolDeathTest, AUnitIsNotReleasedTwice) {
    BlockPool pool(2);
    ASSERT_TRUE(pool.allocate(1));
    pool.release(run(0, 1));
    EXPECT_DEATH(pool.release(run(0, 1)), "free already");
    EXPECT_DEATH(pool.release(run(1, 2)), "of 2");
}

TEST(IdPoolDeathTest, NoUnitOfARunThatIsReleasedIsFencedOrFree) {
    BlockPool pool(4);
    ASSERT_TRUE(pool.allocate(3));
    pool.release(run(1, 1), 7);
    EXPECT_DEATH(pool.release(run(0, 2)), "one of units .0, .2. is free already");
    pool.release(run(0, 1));
    EXPECT_DEATH(pool.release(run(0, 1), 7), "one of units .0, .1. is free already");
}

TEST(IdPoolDeathTest, VerifySeesAReferenceWithoutAHolder) {
    BlockPool pool(2);
    ASSERT_TRUE(pool.allocate(1));
    pool.verify(std::vector<int32_t>{1, 0});
    EXPECT_DEATH(pool.verify(std::vector<int32_t>{0, 0}), "0 references, used 1");
}

TEST(IdPool, PoolsOfOneBudgetGiveWhatItsBytesHoldInAnyMix) {
    ByteBudget budget(100);
    BlockPool blocks(50, budget, 4);
    StatePool rows(10, budget, 30);
    EXPECT_EQ(blocks.num_free(), 25);
    EXPECT_EQ(rows.num_free(), 3);
    ASSERT_TRUE(rows.allocate(2));
    EXPECT_EQ(budget.num_held(), 60);
    EXPECT_EQ(blocks.num_free(), 10);
    EXPECT_FALSE(blocks.allocate(11));
    ASSERT_TRUE(blocks.allocate(10));
    EXPECT_EQ(blocks.num_free(), 0);
    EXPECT_FALSE(rows.allocate(1));
    rows.release({StateIndex{0}, 1});
    EXPECT_EQ(blocks.num_free(), 7);
    EXPECT_EQ(rows.num_free(), 1);
    EXPECT_EQ(blocks.num_affordable(), 25);
    EXPECT_EQ(rows.num_affordable(), 3);
}

TEST(IdPool, FencedBytesAreFreeForEveryPoolWhenTheirStepIsComplete) {
    ByteBudget budget(40);
    BlockPool blocks(10, budget, 4);
    StatePool rows(1, budget, 40);
    ASSERT_TRUE(rows.allocate(1));
    rows.release({StateIndex{0}, 1}, 3);
    EXPECT_EQ(blocks.num_free(), 0);
    EXPECT_EQ(blocks.num_reclaimable(), 10);
    rows.complete_step(3);
    EXPECT_EQ(blocks.num_free(), 10);
    EXPECT_EQ(budget.num_held(), 0);
}

TEST(ByteBudgetDeathTest, HoldsNoMoreThanThereIs) {
    ByteBudget budget(10);
    budget.hold(8);
    EXPECT_DEATH(budget.hold(3), "3 bytes of 2 free ones");
    EXPECT_DEATH(budget.fence(9), "9 bytes of 8");
    EXPECT_DEATH(budget.free(9), "held");
}

}  // namespace
}  // namespace verbatim
