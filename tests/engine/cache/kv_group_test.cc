#include "engine/cache/kv_group.h"

#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "engine/base/prng.h"
#include "engine/cache/state_group.h"

namespace verbatim {
namespace {

using Runs = std::vector<BlockRun>;

BlockRun blocks(int32_t first, int32_t count) { return {BlockId{first}, count}; }

// A head over `length` tokens whose sequence is gone.
BlockTable make_head(KvGroup& kv, int64_t length, int64_t id = 0) {
    BlockTable sequence;
    EXPECT_TRUE(kv.grow(sequence, length));
    const BlockTable head = kv.detach_as_pending(sequence, length, kNoStep);
    kv.publish(head, HeadId{id});
    return head;
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
        for (int32_t i = 0; i < num_full; ++i) EXPECT_EQ(kv.at(attached->table, i), kv.at(head, i));
        EXPECT_EQ(attached->copy.has_value(), length % kBlockSize != 0);
        EXPECT_EQ(kv.pool().num_used(), head.num_blocks + (attached->copy ? 1 : 0));
        if (!attached->copy) continue;
        EXPECT_EQ(attached->copy->src, kv.at(head, num_full));
        EXPECT_EQ(attached->copy->dst, kv.at(attached->table, num_full));
        EXPECT_NE(attached->copy->src, attached->copy->dst);
        EXPECT_EQ(attached->copy->num_slots, length % kBlockSize);
    }
}

TEST(KvGroup, SeveralSequencesAttachToOneHeadWithPrivateTails) {
    KvGroup kv(true, 4, 8);
    const BlockTable head = make_head(kv, 6);
    const auto a = kv.attach(head, 6);
    const auto b = kv.attach(head, 6);
    EXPECT_NE(a->copy->dst, b->copy->dst);
    EXPECT_EQ(a->copy->src, b->copy->src);
    EXPECT_EQ(kv.at(a->table, 0), kv.at(b->table, 0));
}

TEST(KvGroup, TokensOfMoreBlocksThanIdsNeedMoreThanAnyPoolHas) {
    const KvGroup kv(true, 16, 10);
    EXPECT_EQ(kv.blocks_for(16 * int64_t{INT32_MAX}), INT32_MAX);
    EXPECT_EQ(kv.blocks_for((int64_t{1} << 35) + 1600), INT32_MAX);
    EXPECT_EQ(kv.blocks_for((int64_t{1} << 36) + 160), INT32_MAX);
    EXPECT_EQ(kv.blocks_for(INT64_MAX), INT32_MAX);
}

TEST(KvGroup, AttachWithoutABlockForTheTailChangesNothing) {
    KvGroup kv(true, 4, 2);
    const BlockTable head = make_head(kv, 6);
    EXPECT_FALSE(kv.attach(head, 6));
    EXPECT_EQ(kv.num_active_blocks(), 0);
    kv.verify(std::vector<KvGroup::Holder>{{head, HeadId{0}, false}});
    EXPECT_TRUE(kv.attach(head, 4));  // no tail, no block
}

TEST(KvGroup, GrowIsAllOrNothing) {
    KvGroup kv(true, 4, 3);
    BlockTable table;
    ASSERT_TRUE(kv.grow(table, 5));
    EXPECT_EQ(table.num_blocks, 2);
    EXPECT_FALSE(kv.grow(table, 13));
    EXPECT_EQ(table.num_blocks, 2);
    EXPECT_TRUE(kv.grow(table, 12));
    EXPECT_EQ(kv.num_active_blocks(), 3);
}

TEST(KvGroup, ATableOfNoTokensHasNoSegment) {
    KvGroup kv(true, 4, 3);
    BlockTable table;
    EXPECT_TRUE(kv.grow(table, 0));
    EXPECT_EQ(table, BlockTable{});
    EXPECT_EQ(kv.num_segments(), 0u);
}

TEST(KvGroup, ATableGrowsIntoTheBlockBehindItsLastOne) {
    KvGroup kv(true, 4, 16);
    BlockTable a;
    BlockTable b;
    ASSERT_TRUE(kv.grow(a, 8) && kv.grow(b, 4));  // 0 1, 2
    kv.release_sequence(b, kNoStep);
    BlockTable hole;
    ASSERT_TRUE(kv.grow(hole, 4));  // 2
    ASSERT_TRUE(kv.grow(a, 12));    // 3: 2 is used
    kv.release_sequence(hole, kNoStep);
    ASSERT_TRUE(kv.grow(a, 24));
    EXPECT_EQ(kv.runs(a), (Runs{blocks(0, 2), blocks(3, 4)}));
}

TEST(KvGroup, HandOverKeepsTheBlocksBelowTheLengthOnly) {
    KvGroup kv(true, 4, 5);
    BlockTable sequence;
    ASSERT_TRUE(kv.grow(sequence, 17));
    const BlockTable head = kv.detach_as_pending(sequence, 9, kNoStep);
    EXPECT_EQ(head.num_blocks, 3);
    EXPECT_EQ(sequence, BlockTable{});
    EXPECT_EQ(kv.pool().num_free(), 2);
    EXPECT_EQ(kv.num_active_blocks(), 0);
}

TEST(KvGroup, BlocksWithPendingWritesAreFencedInEveryOrderOfRelease) {
    KvGroup kv(true, 4, 4);
    BlockTable sequence;
    ASSERT_TRUE(kv.grow(sequence, 8));
    BlockTable snapshot = kv.share(sequence, 6);
    kv.publish(snapshot, HeadId{3});
    kv.release_sequence(sequence, 5);
    kv.release_head(snapshot, HeadId{3});
    EXPECT_EQ(kv.pool().num_fenced(), 2);
    kv.pool().complete_step(5);
    EXPECT_EQ(kv.pool().num_free(), 4);
}

// Of two segments that become one, either may have been written last.
TEST(KvGroup, BlocksOfSegmentsThatBecameOneAreFencedForTheLaterStep) {
    for (const auto& [lower_step, upper_step] : {std::pair{7, -1}, {-1, 7}}) {
        KvGroup kv(true, 4, 8);
        BlockTable sequence;
        ASSERT_TRUE(kv.grow(sequence, 8));
        BlockTable lower = kv.detach_as_pending(sequence, 8, lower_step);
        kv.publish(lower, HeadId{0});
        auto attached = kv.attach(lower, 8);
        ASSERT_TRUE(attached && kv.grow(attached->table, 12));
        BlockTable upper = kv.detach_as_pending(attached->table, 12, upper_step);
        kv.publish(upper, HeadId{1});
        EXPECT_EQ(kv.num_segments(), 2u);
        kv.release_head(lower, HeadId{0});
        EXPECT_EQ(kv.num_segments(), 1u);
        kv.release_head(upper, HeadId{1});
        EXPECT_EQ(kv.pool().num_fenced(), 3);
        kv.pool().complete_step(7);
        EXPECT_EQ(kv.pool().num_free(), 8);
    }
}

TEST(KvGroup, ASegmentThatIsUsedAgainWaitsForNoStepOfItsFirstUse) {
    KvGroup kv(true, 4, 8);
    BlockTable first;
    ASSERT_TRUE(kv.grow(first, 8));
    const SegmentId segment = first.segment;
    kv.release_sequence(first, 5);
    EXPECT_EQ(kv.pool().num_fenced(), 2);
    BlockTable second;
    ASSERT_TRUE(kv.grow(second, 4));
    EXPECT_EQ(second.segment, segment);
    kv.release_sequence(second, kNoStep);
    EXPECT_EQ(kv.pool().num_fenced(), 2);
    EXPECT_EQ(kv.pool().num_free(), 6);
}

TEST(KvGroup, OnlyHeadsWithAnExclusiveLastBlockAreOnTop) {
    KvGroup kv(true, 4, 16);
    BlockTable sequence;
    ASSERT_TRUE(kv.grow(sequence, 10));
    const SegmentId segment = sequence.segment;
    BlockTable prompt = kv.share(sequence, 9);
    kv.publish(prompt, HeadId{1});
    EXPECT_TRUE(kv.top_heads(segment).empty());  // its sequence holds the block, too
    BlockTable turn = kv.detach_as_pending(sequence, 10, kNoStep);
    EXPECT_TRUE(kv.top_heads(segment).empty());  // a pending
    kv.publish(turn, HeadId{2});
    EXPECT_EQ(kv.top_heads(segment).size(), 2u);
    const auto attached = kv.attach(turn, 8);
    EXPECT_EQ(kv.top_heads(segment).size(), 2u);  // the third block is theirs alone
    kv.release_head(turn, HeadId{2});
    kv.release_head(prompt, HeadId{1});
    EXPECT_TRUE(kv.top_heads(segment).empty());
    EXPECT_EQ(kv.pool().num_used(), 2);
    EXPECT_EQ(kv.runs(attached->table), Runs{blocks(0, 2)});
}

TEST(KvGroup, ActiveBlocksAreThoseThatSequencesHold) {
    KvGroup kv(true, 4, 8);
    const BlockTable head = make_head(kv, 10);
    EXPECT_EQ(kv.num_active_in(head, 10), 0);
    auto a = kv.attach(head, 10);
    auto b = kv.attach(head, 10);
    EXPECT_EQ(kv.num_active_in(head, 10), 2);
    EXPECT_EQ(kv.num_active_blocks(), 4);
    kv.release_sequence(a->table, kNoStep);
    EXPECT_EQ(kv.num_active_blocks(), 3);
    kv.release_sequence(b->table, kNoStep);
    EXPECT_EQ(kv.num_active_blocks(), 0);
}

// However many turns a conversation has had, its newest heads are a few segments, and its blocks are in order.
TEST(KvGroup, ALoneConversationIsAFewSegments) {
    KvGroup kv(true, 4, 4096);
    std::vector<BlockTable> heads = {make_head(kv, 7, 0)};
    int64_t length = 7;
    for (int64_t turn = 1; turn <= 500; ++turn, length += 7) {
        auto attached = kv.attach(heads.back(), length);
        ASSERT_TRUE(attached && kv.grow(attached->table, length + 7));
        heads.push_back(kv.detach_as_pending(attached->table, length + 7, kNoStep));
        kv.publish(heads.back(), HeadId{turn});
        if (turn >= 2) kv.release_head(heads[turn - 2], HeadId{turn - 2});
        EXPECT_LE(kv.num_segments(), 3u);
    }
    int32_t num_blocks = 0;
    for (const BlockRun& part : kv.runs(heads.back())) num_blocks += part.count;
    EXPECT_EQ(num_blocks, kv.blocks_for(length));
    for (const int32_t place : {0, 1, 17, num_blocks / 2, num_blocks - 1}) {
        std::vector<BlockRun> one;
        kv.append_runs(heads.back(), place, place + 1, one);
        EXPECT_EQ(one, Runs{blocks(index(kv.at(heads.back(), place)), 1)});
    }
    kv.verify(std::vector<KvGroup::Holder>{{heads[499], HeadId{499}, false}, {heads[500], HeadId{500}, false}});
}

TEST(KvGroupDeathTest, VerifySeesAHolderThatIsNotCounted) {
    KvGroup kv(true, 4, 8);
    const BlockTable head = make_head(kv, 10);
    kv.verify(std::vector<KvGroup::Holder>{{head, HeadId{0}, false}});
    EXPECT_DEATH(kv.verify({}), "is held at 0 places, counted 1");
    EXPECT_DEATH(kv.verify(std::vector<KvGroup::Holder>{{head, HeadId{1}, false}}), "1 heads");
    EXPECT_DEATH(kv.verify(std::vector<KvGroup::Holder>{{head, HeadId{0}, true}}), "blocks are active, counted 0");
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

// Blocks 0 to 3 are of one segment, in which a head ends behind block 0; the fifth and sixth lie behind it in another.
TEST(KvGroup, TheBlocksThatOnlyALongerHeadHoldsAreItsAlone) {
    KvGroup kv(true, 4, 16);
    BlockTable sequence;
    ASSERT_TRUE(kv.grow(sequence, 16));
    const BlockTable low = kv.share(sequence, 4);
    kv.publish(low, HeadId{0});
    BlockTable middle = kv.detach_as_pending(sequence, 16, kNoStep);
    kv.publish(middle, HeadId{1});
    auto attached = kv.attach(middle, 16);
    ASSERT_TRUE(attached && kv.grow(attached->table, 24));
    const BlockTable high = kv.detach_as_pending(attached->table, 24, kNoStep);
    kv.publish(high, HeadId{2});
    EXPECT_EQ(kv.exclusive_blocks(high).num_blocks, 2) << "the middle one holds four";
    BlockTable sharer = kv.attach(middle, 16)->table;
    kv.release_head(middle, HeadId{1});
    EXPECT_EQ(kv.exclusive_blocks(high).num_blocks, 2) << "a sequence holds four";
    kv.release_sequence(sharer, kNoStep);
    const int64_t before = kv.num_visits();
    EXPECT_EQ(kv.exclusive_blocks(high).num_blocks, 5);
    EXPECT_EQ(kv.exclusive_blocks(high).num_heads, 1);
    EXPECT_EQ(kv.num_visits() - before, 4) << "two segments, twice";
    EXPECT_EQ(kv.exclusive_blocks(low).num_blocks, 0);
}

TEST(KvGroup, EveryLookForAPlaceIsCounted) {
    KvGroup kv(true, 4, 16);
    BlockTable sequence;
    ASSERT_TRUE(kv.grow(sequence, 64));
    std::vector<BlockTable> shared;
    for (int64_t length = 4; length <= 28; length += 4) shared.push_back(kv.share(sequence, length));
    const auto visits = [&](const auto& call) {
        const int64_t before = kv.num_visits();
        call();
        return kv.num_visits() - before;
    };
    EXPECT_EQ(visits([&] { (void)kv.at(sequence, 3); }), 1) << "a segment";
    EXPECT_EQ(visits([&] { kv.release_pending(shared[0]); }), 5) << "a segment, and four of eight places";
    BlockTable lone;
    KvGroup other(true, 4, 16);
    ASSERT_TRUE(other.grow(lone, 4));
    const int64_t before = other.num_visits();
    ASSERT_TRUE(other.grow(lone, 8));
    EXPECT_EQ(other.num_visits() - before, 8) << "its only place moves: no place is looked for";
}

// What exclusive_blocks says is what the pool gets back.
TEST(KvGroup, ExclusiveBlocksAreThoseThatGoBackToThePoolWithTheHeadsThatEndInOneBlock) {
    struct Made {
        BlockTable table;
        int64_t length = 0;
    };
    for (uint64_t seed = 1; seed <= 200; ++seed) {
        Prng prng(seed);
        KvGroup kv(true, 4, 400);
        std::map<HeadId, Made> heads;
        for (int64_t next = 0; next < 20; ++next) {
            BlockTable sequence;
            int64_t length = 0;
            if (!heads.empty() && prng.below(4) > 0) {
                auto from = heads.begin();
                std::advance(from, static_cast<int64_t>(prng.below(heads.size())));
                length = from->second.length;
                sequence = kv.attach(from->second.table, length)->table;
            }
            length += 1 + static_cast<int64_t>(prng.below(13));
            ASSERT_TRUE(kv.grow(sequence, length));
            int64_t shorter = length - 1;  // often in the same block
            if (prng.below(2) == 0) shorter = static_cast<int64_t>(prng.below(static_cast<uint64_t>(length)));
            if (shorter > 0 && prng.below(2) == 0) {
                const BlockTable snapshot = kv.share(sequence, shorter);
                kv.publish(snapshot, HeadId{100 + next});
                heads[HeadId{100 + next}] = {snapshot, shorter};
            }
            const BlockTable pending = kv.detach_as_pending(sequence, length, kNoStep);
            kv.publish(pending, HeadId{next});
            heads[HeadId{next}] = {pending, length};
            if (prng.below(3) > 0) continue;
            auto gone = heads.begin();
            std::advance(gone, static_cast<int64_t>(prng.below(heads.size())));
            const BlockTable table = gone->second.table;
            std::vector<HeadId> equals;  // that end in the same block
            for (const auto& [head, made] : heads) {
                if (made.table == table) equals.push_back(head);
            }
            const KvGroup::Exclusive exclusive = kv.exclusive_blocks(table);
            const int32_t num_used = kv.pool().num_used();
            for (const HeadId head : equals) {
                kv.release_head(heads.at(head).table, head);
                heads.erase(head);
            }
            ASSERT_EQ(num_used - kv.pool().num_used(), exclusive.num_blocks) << "seed " << seed;
            if (exclusive.num_blocks == 0) continue;
            ASSERT_EQ(exclusive.num_heads, static_cast<int32_t>(equals.size())) << "seed " << seed;
        }
    }
}

}  // namespace
}  // namespace verbatim
