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

TEST(IdPool, AUnitIsFreeOnlyAfterItsLastReference) {
    BlockPool pool(3);
    ASSERT_TRUE(pool.allocate(3));
    pool.retain(run(1, 2));
    pool.release(run(0, 3));
    EXPECT_EQ(pool.num_free(), 1);
    EXPECT_EQ(pool.ref_cnt(BlockId{1}), 1);
    pool.release(run(1, 2));
    EXPECT_EQ(pool.num_free(), 3);
}

TEST(IdPool, FreedRunsMergeWithBothNeighbours) {
    BlockPool pool(6);
    ASSERT_TRUE(pool.allocate(6));
    pool.release(run(0, 2));
    pool.release(run(4, 2));
    pool.release(run(2, 2));
    EXPECT_EQ(*pool.allocate(6), Runs{run(0, 6)});
}

TEST(IdPool, WhatAnOpenStepFreesIsFencedUntilTheStepIsComplete) {
    BlockPool pool(2);
    ASSERT_TRUE(pool.allocate(2));
    pool.begin_step(7);
    pool.release(run(0, 1));
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
    for (int32_t step = 0; step < 3; ++step) {
        pool.begin_step(step);
        pool.release(run(step, 1));
    }
    pool.complete_step(1);
    EXPECT_EQ(pool.num_free(), 2);
    EXPECT_EQ(pool.num_fenced(), 1);
    pool.complete_step(2);
    EXPECT_EQ(pool.num_free(), 3);
}

TEST(IdPool, BetweenStepsNothingIsFenced) {
    BlockPool pool(1);
    pool.begin_step(0);
    pool.complete_step(0);
    ASSERT_TRUE(pool.allocate(1));
    pool.release(run(0, 1));
    EXPECT_EQ(pool.num_free(), 1);
}

TEST(IdPoolDeathTest, AUnitIsNotReleasedTwice) {
    BlockPool pool(2);
    ASSERT_TRUE(pool.allocate(1));
    pool.release(run(0, 1));
    EXPECT_DEATH(pool.release(run(0, 1)), "free already");
    EXPECT_DEATH(pool.retain(run(1, 1)), "is free");
}

TEST(IdPoolDeathTest, VerifySeesAReferenceThatNobodyHolds) {
    BlockPool pool(2);
    ASSERT_TRUE(pool.allocate(1));
    pool.verify(std::vector<int32_t>{1, 0});
    EXPECT_DEATH(pool.verify(std::vector<int32_t>{0, 0}), "0 references, ref_cnt 1");
}

}  // namespace
}  // namespace verbatim
