#include "engine/cache/kv_group.h"

#include <gtest/gtest.h>

#include "engine/cache/state_group.h"

namespace verbatim {
namespace {

BlockRun blocks(int32_t first, int32_t count) { return {BlockId{first}, count}; }

TEST(BlockTable, AdjacentRunsBecomeOne) {
    BlockTable table;
    table.append(blocks(3, 2));
    table.append(blocks(5, 1));
    table.append(blocks(0, 1));
    table.append(blocks(9, 0));
    EXPECT_EQ(table.runs(), (std::vector{blocks(3, 3), blocks(0, 1)}));
    EXPECT_EQ(table.num_blocks(), 4);
    EXPECT_EQ(table.at(2), BlockId{5});
    EXPECT_EQ(table.at(3), BlockId{0});
}

TEST(BlockTable, APrefixEndsInsideARun) {
    BlockTable table;
    table.append(blocks(3, 3));
    table.append(blocks(0, 2));
    EXPECT_EQ(table.prefix(2).runs(), std::vector{blocks(3, 2)});
    EXPECT_EQ(table.prefix(4).runs(), (std::vector{blocks(3, 3), blocks(0, 1)}));
    EXPECT_EQ(table.prefix(0).num_blocks(), 0);
}

// A head over `length` tokens whose sequence is gone.
BlockTable make_head(KvGroup& kv, int64_t length) {
    BlockTable sequence;
    EXPECT_TRUE(kv.grow(sequence, length));
    return kv.hand_over(sequence, length);
}

TEST(KvGroup, AttachSharesFullBlocksAndCopiesTheTailAtEveryLength) {
    constexpr int32_t kBlockSize = 4;
    for (int64_t length = 1; length <= 3 * kBlockSize; ++length) {
        SCOPED_TRACE(length);
        KvGroup kv(true, kBlockSize, 8);
        const BlockTable head = make_head(kv, length);
        auto attached = kv.attach(head, length);
        ASSERT_TRUE(attached);
        const auto num_full = static_cast<int32_t>(length / kBlockSize);
        EXPECT_EQ(attached->num_shared_blocks, num_full);
        EXPECT_EQ(attached->table.prefix(num_full), head.prefix(num_full));
        for (int32_t i = 0; i < num_full; ++i) EXPECT_EQ(kv.pool().ref_cnt(head.at(i)), 2);
        EXPECT_EQ(attached->copy.has_value(), length % kBlockSize != 0);
        if (!attached->copy) continue;
        EXPECT_EQ(attached->copy->src, head.at(num_full));
        EXPECT_EQ(attached->copy->dst, attached->table.at(num_full));
        EXPECT_EQ(attached->copy->num_slots, length % kBlockSize);
        EXPECT_EQ(kv.pool().ref_cnt(attached->copy->src), 1);
        EXPECT_EQ(kv.pool().ref_cnt(attached->copy->dst), 1);
    }
}

TEST(KvGroup, SeveralSequencesAttachToOneHeadWithTailsOfTheirOwn) {
    KvGroup kv(true, 4, 8);
    const BlockTable head = make_head(kv, 6);
    const auto a = kv.attach(head, 6);
    const auto b = kv.attach(head, 6);
    EXPECT_NE(a->copy->dst, b->copy->dst);
    EXPECT_EQ(a->copy->src, b->copy->src);
    EXPECT_EQ(kv.pool().ref_cnt(head.at(0)), 3);
}

TEST(KvGroup, AttachWithoutABlockForTheTailChangesNothing) {
    KvGroup kv(true, 4, 2);
    const BlockTable head = make_head(kv, 6);
    EXPECT_FALSE(kv.attach(head, 6));
    EXPECT_EQ(kv.pool().ref_cnt(head.at(0)), 1);
    EXPECT_EQ(kv.num_active_blocks(), 0);
    EXPECT_TRUE(kv.attach(head, 4));  // no tail, no block
}

TEST(KvGroup, GrowIsAllOrNothing) {
    KvGroup kv(true, 4, 3);
    BlockTable table;
    ASSERT_TRUE(kv.grow(table, 5));
    EXPECT_EQ(table.num_blocks(), 2);
    EXPECT_FALSE(kv.grow(table, 13));
    EXPECT_EQ(table.num_blocks(), 2);
    EXPECT_TRUE(kv.grow(table, 12));
    EXPECT_EQ(kv.num_active_blocks(), 3);
}

TEST(KvGroup, HandOverKeepsTheBlocksBelowTheLengthOnly) {
    KvGroup kv(true, 4, 5);
    BlockTable sequence;
    ASSERT_TRUE(kv.grow(sequence, 17));
    const BlockTable head = kv.hand_over(sequence, 9);
    EXPECT_EQ(head.num_blocks(), 3);
    EXPECT_EQ(sequence.num_blocks(), 0);
    EXPECT_EQ(kv.pool().num_free(), 2);
    EXPECT_EQ(kv.num_active_blocks(), 0);
}

TEST(KvGroup, MarginalBlocksAreThoseThatNobodyElseHolds) {
    KvGroup kv(true, 4, 8);
    BlockTable first = make_head(kv, 10);
    EXPECT_EQ(kv.marginal_blocks(first), 3);
    auto attached = kv.attach(first, 10);
    ASSERT_TRUE(kv.grow(attached->table, 14));
    const BlockTable second = kv.hand_over(attached->table, 14);
    EXPECT_EQ(kv.marginal_blocks(first), 1);   // its tail
    EXPECT_EQ(kv.marginal_blocks(second), 2);  // its copy of the tail, and one more
    kv.release(first);
    EXPECT_EQ(kv.marginal_blocks(second), 4);
}

TEST(KvGroup, ActiveBlocksAreThoseThatSequencesHold) {
    KvGroup kv(true, 4, 8);
    const BlockTable head = make_head(kv, 10);
    EXPECT_EQ(kv.num_active_in(head, 10), 0);
    auto a = kv.attach(head, 10);
    auto b = kv.attach(head, 10);
    EXPECT_EQ(kv.num_active_in(head, 10), 2);
    EXPECT_EQ(kv.num_active_blocks(), 4);
    kv.release_sequence(a->table);
    EXPECT_EQ(kv.num_active_blocks(), 3);
    kv.release_sequence(b->table);
    EXPECT_EQ(kv.num_active_blocks(), 0);
}

TEST(KvGroup, AModelWithoutAttentionNeedsNoBlocks) {
    KvGroup kv(false, 4, 0);
    BlockTable table;
    EXPECT_TRUE(kv.grow(table, 1000));
    EXPECT_EQ(kv.blocks_for(1000), 0);
    const auto attached = kv.attach(table, 999);
    ASSERT_TRUE(attached);
    EXPECT_FALSE(attached->copy);
    EXPECT_EQ(kv.num_active_in(table, 999), 0);
}

TEST(StateGroup, ARowHasOneOwnerUntilItIsGivenBack) {
    StateGroup state(true, 2);
    auto first = state.allocate();
    EXPECT_EQ(*first, StateIndex{0});
    EXPECT_EQ(*state.allocate(), StateIndex{1});
    EXPECT_FALSE(state.allocate());
    state.release(*first);
    EXPECT_EQ(*first, kNoState);
    EXPECT_EQ(*state.allocate(), StateIndex{0});
}

TEST(StateGroup, AModelWithoutStateHasNoRows) {
    StateGroup state(false, 5);
    EXPECT_EQ(state.allocate(), kNoState);
    EXPECT_EQ(state.pool().num_units(), 0);
}

}  // namespace
}  // namespace verbatim
