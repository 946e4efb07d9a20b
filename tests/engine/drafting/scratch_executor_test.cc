#include "engine/drafting/scratch_executor.h"

#include <gtest/gtest.h>

#include "tests/support/null_executor.h"

namespace verbatim::tests {
namespace {

constexpr PoolSizes kPools{.block_size = 4, .num_blocks = 3, .num_state_rows = 2};

// Keeps what it is given, and fails on request.
class KeepingExecutor final : public Executor {
public:
    Status execute(const StepPlan& plan, StepResult& result) override {
        plans.push_back(plan);
        if (fails) return error("it fails");
        return null_.execute(plan, result);
    }
    std::optional<Digest> head_digest(const HeadImage&) override { return std::nullopt; }
    [[nodiscard]] std::string numerics_id() const override { return null_.numerics_id(); }
    void take_freed(const FreedUnits& freed) override { last_freed = freed; }

    std::vector<StepPlan> plans;
    FreedUnits last_freed;
    bool fails = false;

private:
    NullExecutor null_;
};

class ScratchExecutorScene : public testing::Test {
protected:
    void start(int32_t at, ScratchSlot& slot) { scratch_.start(at, slot, {.request = RequestId{at}}); }

    KeepingExecutor executor_;
    ScratchExecutor scratch_{executor_, kPools};
};

TEST_F(ScratchExecutorScene, BlocksThatASlotGivesUpAreTheNextOnes) {
    ScratchSlot first;
    ScratchSlot second;
    scratch_.grow(first, 5);
    scratch_.grow(second, 4);
    EXPECT_EQ(first.blocks, (std::vector<int32_t>{0, 1}));
    EXPECT_EQ(second.blocks, (std::vector<int32_t>{2}));
    EXPECT_EQ(scratch_.num_missing_blocks(second, 9), 2);
    scratch_.end(0, first);
    EXPECT_EQ(scratch_.num_free_blocks(), 2);
    scratch_.grow(second, 9);
    EXPECT_EQ(second.blocks, (std::vector<int32_t>{2, 0, 1}));
}

TEST_F(ScratchExecutorScene, TheExecutorLearnsOfAnEndWithItsNextStep) {
    ScratchSlot slot;
    scratch_.grow(slot, 4);
    start(1, slot);
    scratch_.schedule(1, slot, 4, {});
    ASSERT_TRUE(scratch_.step());
    EXPECT_EQ(executor_.last_freed.blocks, (std::vector<BlockRun>{{BlockId{0}, 3}})) << "all are free at first";
    EXPECT_EQ(executor_.last_freed.rows, (std::vector<RowRun>{{StateIndex{0}, 2}}));
    scratch_.end(1, slot);
    EXPECT_TRUE(scratch_.step()) << "nothing is scheduled";
    EXPECT_EQ(executor_.plans.size(), 1u);
    ScratchSlot next;
    scratch_.grow(next, 1);
    start(0, next);
    scratch_.schedule(0, next, 1, {});
    ASSERT_TRUE(scratch_.step());
    EXPECT_EQ(executor_.plans.back().finished_slots, std::vector{SequenceSlot{1}});
    EXPECT_EQ(executor_.last_freed.blocks, (std::vector<BlockRun>{{BlockId{0}, 1}}));
    EXPECT_EQ(executor_.last_freed.rows, (std::vector<RowRun>{{StateIndex{1}, 1}}));
}

TEST_F(ScratchExecutorScene, ASlotsBlocksAndTokensAreSentOnce) {
    ScratchSlot slot;
    scratch_.grow(slot, 4);
    start(0, slot);
    scratch_.schedule(0, slot, 3, {});
    ASSERT_TRUE(scratch_.step());
    scratch_.grow(slot, 6);
    const std::vector<TokenId> more{7, 8};
    scratch_.schedule(0, slot, 2, more);
    ASSERT_TRUE(scratch_.step());
    const StepPlan& plan = executor_.plans.back();
    EXPECT_EQ(plan.tokens, more);
    EXPECT_EQ(plan.blocks, (std::vector<BlockRun>{{BlockId{1}, 1}}));
    EXPECT_EQ(plan.sequences.front().num_computed_tokens, 3);
    EXPECT_EQ(plan.sequences.front().num_state_tokens, 3);
    EXPECT_EQ(plan.step, executor_.plans.front().step + 1);
    EXPECT_EQ(slot.length, 5);
}

TEST(ScratchExecutor, AModelWithoutAttentionMissesNoBlockAndOneWithoutStateGivesNoRowBack) {
    KeepingExecutor executor;
    ScratchExecutor without_kv(executor, {.block_size = 4, .num_blocks = 0, .num_state_rows = 1});
    EXPECT_EQ(without_kv.num_missing_blocks({}, 100), 0);
    ScratchExecutor one_block(executor, {.block_size = 4, .num_blocks = 1, .num_state_rows = 1});
    EXPECT_EQ(one_block.num_missing_blocks({}, 4), 1);
    for (const int32_t num_rows : {0, 1}) {
        ScratchExecutor scratch(executor, {.block_size = 4, .num_blocks = 3, .num_state_rows = num_rows});
        for (int step = 0; step < 2; ++step) {
            ScratchSlot slot;
            scratch.grow(slot, 4);
            scratch.start(0, slot, {});
            scratch.schedule(0, slot, 4, {});
            ASSERT_TRUE(scratch.step());
            scratch.end(0, slot);
        }
        EXPECT_EQ(executor.last_freed.rows.size(), static_cast<size_t>(num_rows));
    }
}

TEST_F(ScratchExecutorScene, WhatStartsNowComesBehindWhatIsThere) {
    ScratchSlot older;
    ScratchSlot newer;
    start(0, older);
    start(1, newer);
    EXPECT_LT(older.order(), newer.order());
    EXPECT_LT(newer.order(), ScratchSlot().order());
}

TEST_F(ScratchExecutorScene, AfterAFailureEveryBlockIsFree) {
    ScratchSlot slot;
    scratch_.grow(slot, 12);
    start(0, slot);
    scratch_.schedule(0, slot, 12, {}).num_sampled_positions = 1;
    executor_.fails = true;
    EXPECT_FALSE(scratch_.step());
    scratch_.forget();
    EXPECT_EQ(scratch_.num_free_blocks(), 3);
    executor_.fails = false;
    ScratchSlot next;
    scratch_.grow(next, 12);
    start(0, next);
    scratch_.schedule(0, next, 12, {}).num_sampled_positions = 1;
    ASSERT_TRUE(scratch_.step());
    EXPECT_EQ(scratch_.sampled(0, 1), TokenId{1});
    EXPECT_EQ(executor_.last_freed.blocks, (std::vector<BlockRun>{{BlockId{0}, 3}}));
}

}  // namespace
}  // namespace verbatim::tests
