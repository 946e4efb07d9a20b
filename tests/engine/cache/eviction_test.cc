// The order of eviction without a cache around it: heads over separate blocks, and what a policy says of them.
#include "engine/cache/eviction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <vector>

#include "engine/tokens/token_seq.h"
#include "tests/support/plain_lru.h"

namespace verbatim {
namespace {

using ::testing::ElementsAre;

struct OrderScene {
    explicit OrderScene(EvictionPolicy& policy) : order(policy, kv) {}

    // A head of so many tokens, in blocks of 4; from the first block on, or on top of another head's full blocks.
    HeadId add(int64_t length, HeadKind kind = HeadKind::kTurn, HeadId from = kNoHead) {
        BlockTable sequence;
        if (from != kNoHead) sequence = kv.attach(heads.at(from).blocks, heads.at(from).length())->table;
        EXPECT_TRUE(kv.grow(sequence, length));
        return publish(kv.detach_as_pending(sequence, length, kNoStep), length, kind);
    }
    HeadId publish(const BlockTable& pending, int64_t length, HeadKind kind) {
        const HeadId id{next++};
        heads[id] = {.id = id, .kind = kind, .tokens = store.derive(0, 0, length), .blocks = pending};
        kv.publish(pending, id);
        order.add(heads.at(id));
        return id;
    }
    // As it is evicted.
    void remove(HeadId id) {
        order.remove(id);
        kv.release_head(heads.at(id).blocks, id);
        heads.erase(id);
    }
    std::optional<HeadId> for_blocks(const EvictionOrder::Reach& reach = {}) { return order.first(Pool::kKv, reach); }
    std::optional<HeadId> for_rows(const EvictionOrder::Reach& reach = {}) { return order.first(Pool::kState, reach); }
    void verify() {
        std::vector<const Head*> all;
        for (const auto& [id, head] : heads) all.push_back(&head);
        order.verify(all);
    }

    TokenStore store{1000};
    KvGroup kv{true, 4, 64};
    EvictionOrder order;
    std::map<HeadId, Head> heads;
    int64_t next = 0;
};

TEST(EvictionOrder, TheLeastRecentlyUsedHeadGoesFirst) {
    LruEviction lru;
    OrderScene scene(lru);
    const HeadId a = scene.add(4);
    const HeadId b = scene.add(4);
    const HeadId c = scene.add(4);
    scene.order.use(a);
    EXPECT_EQ(scene.for_blocks(), b);
    EXPECT_EQ(scene.for_rows(), b);
    EXPECT_THAT(scene.order.in_order(), ElementsAre(b, c, a));
    scene.verify();
}

TEST(EvictionOrder, AHeadIsOfferedAgainAfterAsManyUnpinsAsPins) {
    LruEviction lru;
    OrderScene scene(lru);
    const HeadId a = scene.add(4);
    scene.order.pin(a);
    scene.order.pin(a);
    scene.order.unpin(a);
    EXPECT_EQ(scene.order.num_pins(a), 1);
    EXPECT_EQ(scene.for_blocks(), std::nullopt);
    EXPECT_EQ(scene.for_rows(), std::nullopt);
    scene.order.use(a);  // while it is pinned
    scene.verify();
    scene.order.unpin(a);
    EXPECT_EQ(scene.for_blocks(), a);
    EXPECT_EQ(scene.for_rows(), a);
    scene.verify();
}

TEST(EvictionOrder, AHeadThatAWaitingRequestNeedsGoesLast) {
    LruEviction lru;
    OrderScene scene(lru);
    const HeadId a = scene.add(4);
    const HeadId b = scene.add(4);
    scene.order.expect(a);
    scene.order.expect(a);
    scene.order.unexpect(a);
    for (const Pool pool : {Pool::kKv, Pool::kState}) {
        EXPECT_EQ(scene.order.first(pool, {}), b);
        EXPECT_EQ(scene.order.first(pool, {.except = b}), std::nullopt);
        EXPECT_EQ(scene.order.first(pool, {.except = b, .spare_expected = false}), a);
    }
    scene.verify();
    scene.order.unexpect(a);
    EXPECT_EQ(scene.for_blocks(), a);
    EXPECT_EQ(scene.for_rows(), a);
}

TEST(EvictionOrder, ForBlocksAHeadBelowAnotherIsNotOffered) {
    LruEviction lru;
    OrderScene scene(lru);
    const HeadId below = scene.add(8);
    const HeadId above = scene.add(16, HeadKind::kTurn, below);
    const HeadId other = scene.add(4);
    scene.order.use(above);
    EXPECT_EQ(scene.for_rows(), below);
    EXPECT_EQ(scene.for_blocks(), other);
    scene.remove(other);
    EXPECT_EQ(scene.for_blocks(), above);
    scene.remove(above);
    EXPECT_EQ(scene.for_blocks(), below);
    scene.verify();
}

// One alone frees nothing: they go one after the other, in the place of the one that was used last.
TEST(EvictionOrder, HeadsThatEndInOneBlockGoWhenTheLastUsedOfThemWould) {
    LruEviction lru;
    OrderScene scene(lru);
    BlockTable sequence;
    ASSERT_TRUE(scene.kv.grow(sequence, 8));
    const HeadId prompt = scene.publish(scene.kv.share(sequence, 7), 7, HeadKind::kPrompt);
    const HeadId other = scene.add(4);
    const HeadId turn = scene.publish(scene.kv.detach_as_pending(sequence, 8, kNoStep), 8, HeadKind::kTurn);
    EXPECT_EQ(scene.for_blocks(), other);
    EXPECT_EQ(scene.for_rows(), prompt);
    scene.remove(other);
    EXPECT_EQ(scene.for_blocks(), turn);
    scene.order.pin(prompt);  // without it nothing is freed
    EXPECT_EQ(scene.for_blocks(), std::nullopt);
    scene.verify();
}

TEST(EvictionOrder, ForRowsUnusedSnapshotsGoFirst) {
    LruEviction lru;
    OrderScene scene(lru);
    const HeadId turn = scene.add(4);
    const HeadId used = scene.add(4, HeadKind::kPrompt);
    const HeadId unused = scene.add(4, HeadKind::kCheckpoint);
    scene.order.use(used);
    EXPECT_EQ(scene.for_rows(), unused);
    EXPECT_EQ(scene.for_blocks(), turn);
    EXPECT_EQ(scene.for_rows({.except = unused, .spare_proven = true}), std::nullopt);
    scene.remove(unused);
    EXPECT_EQ(scene.for_rows(), turn);
}

// The rival that LruEviction is measured against prefers no kind and passes over none.
TEST(EvictionOrder, UnderAPlainPolicyTheOldestGoesFirstWhateverItIs) {
    PlainLru plain;
    OrderScene scene(plain);
    const HeadId turn = scene.add(8);
    const HeadId above = scene.add(16, HeadKind::kPrompt, turn);
    const HeadId last = scene.add(4, HeadKind::kPrompt);
    for (const HeadId oldest : {turn, above, last}) {
        EXPECT_EQ(scene.for_rows(), oldest);
        EXPECT_EQ(scene.for_rows({.spare_proven = true}), oldest);
        EXPECT_EQ(scene.for_blocks(), oldest);
        scene.remove(oldest);
    }
}

TEST(EvictionOrder, UnderAPlainPolicyAUsedSnapshotIsAsOldAsItsLastUse) {
    PlainLru plain;
    OrderScene scene(plain);
    const HeadId snapshot = scene.add(4, HeadKind::kPrompt);
    const HeadId turn = scene.add(4);
    const HeadId newer = scene.add(4, HeadKind::kPrompt);
    scene.order.use(snapshot);
    EXPECT_THAT(scene.order.in_order(), ElementsAre(turn, newer, snapshot));
}

// Keeps the calls.
class ToldPolicy final : public EvictionPolicy {
public:
    [[nodiscard]] int64_t rank(const HeadUse& use) override {
        told.push_back(use);
        return -use.length;
    }
    std::vector<HeadUse> told;
};

TEST(EvictionOrder, APolicySeesPublicationsAndUses) {
    ToldPolicy policy;
    OrderScene scene(policy);
    const HeadId small = scene.add(4);
    const HeadId large = scene.add(9, HeadKind::kPrompt);
    scene.order.use(large);
    scene.order.use(large);
    EXPECT_EQ(scene.for_blocks(), large);  // asking tells nothing
    ASSERT_EQ(policy.told.size(), 4u);
    for (size_t i = 1; i < 4; ++i) {
        EXPECT_EQ(policy.told[i].head, large);
        EXPECT_EQ(policy.told[i].kind, HeadKind::kPrompt);
        EXPECT_EQ(policy.told[i].length, 9);
        EXPECT_EQ(policy.told[i].num_uses, static_cast<int64_t>(i) - 1);
        EXPECT_GT(policy.told[i].now, policy.told[i - 1].now);
    }
    EXPECT_EQ(policy.told[0].head, small);
}

// Value per byte, part by part.
TEST(ValueEviction, AHeadThatSavesMoreStaysLongerAndOneOfMoreBytesGoesEarlier) {
    ValueEviction policy;
    const auto rank = [&](int64_t operations, int64_t bytes) {
        return policy.rank({.head = HeadId{1}, .length = 10, .worth = {.operations = operations, .bytes = bytes}});
    };
    EXPECT_EQ(rank(2000, 10) - rank(1000, 10), 1 << 16) << "an octave";
    EXPECT_EQ(rank(1000, 10) - rank(1000, 20), 1 << 16);
    EXPECT_EQ(rank(1000, 10), rank(8000, 80));
}

TEST(ValueEviction, NoKindIsBarredOrSafe) {
    ValueEviction policy;
    const auto rank = [&](HeadKind kind) {
        return policy.rank({.head = HeadId{1}, .kind = kind, .length = 10, .worth = {.operations = 1000, .bytes = 10}});
    };
    for (const HeadKind kind : {HeadKind::kPrompt, HeadKind::kCheckpoint, HeadKind::kBranch}) {
        EXPECT_EQ(rank(kind), rank(HeadKind::kTurn)) << name(kind) << ": nothing has been learned yet";
    }
    const int64_t before = rank(HeadKind::kTurn);
    for (int i = 0; i < 100; ++i) {
        policy.note_reached(ReuseModel::class_of({.kind = HeadKind::kPrompt}), 0);
        policy.note_used({.kind = HeadKind::kPrompt}, 0);
        policy.note_reached(ReuseModel::class_of({.kind = HeadKind::kTurn}), 0);
    }
    EXPECT_GT(rank(HeadKind::kPrompt), before) << "what is used stays";
    EXPECT_LT(rank(HeadKind::kTurn), before) << "what is not used goes";
}

// A class that is always evicted early would never show that it comes back.
TEST(EvictionOrder, AGhostThatIsMetCountsAsAUseOfItsClass) {
    class Counting final : public EvictionPolicy {
    public:
        int64_t rank(const HeadUse& use) override { return use.now; }
        [[nodiscard]] bool ranks_by_worth() const override { return true; }
        [[nodiscard]] bool goes_by_rank_alone() const override { return true; }
        void note_used(const HeadClass& head, int32_t age) override {
            uses.push_back({static_cast<int64_t>(head.kind), head.num_uses, age});
        }
        std::vector<std::array<int64_t, 3>> uses;
    };
    Counting policy;
    OrderScene scene(policy);
    const HeadId head = scene.add(4, HeadKind::kBranch);
    scene.order.remove_to_ghost(head);
    for (int i = 0; i < 4; ++i) scene.order.tick();
    scene.order.use_ghost(head);
    scene.order.use_ghost(head);
    const auto branch = static_cast<int64_t>(HeadKind::kBranch);
    EXPECT_THAT(policy.uses, ElementsAre(std::array<int64_t, 3>{branch, 0, ReuseModel::bucket_of(4)},
                                         std::array<int64_t, 3>{branch, 1, 0}));
    scene.order.forget_ghost(head);
    EXPECT_EQ(scene.order.num_ghosts(), 0u);
}

TEST(EvictionOrderDeathTest, AHeadOutsideTheOrderCannotBeMoved) {
    LruEviction lru;
    OrderScene scene(lru);
    const HeadId a = scene.add(4);
    EXPECT_DEATH(scene.order.use(HeadId{7}), "head 7 is not in the order");
    EXPECT_DEATH((void)scene.order.num_pins(HeadId{7}), "head 7 is not in the order");
    EXPECT_DEATH(scene.order.add(scene.heads.at(a)), "head 0 is in the table already");
    EXPECT_DEATH(scene.order.unpin(a), "head 0 is not pinned");
    EXPECT_DEATH(scene.order.unexpect(a), "no request waits for head 0");
    scene.order.pin(a);
    EXPECT_DEATH(scene.order.remove(a), "head 0 goes with 1 pins");
}

TEST(EvictionOrderDeathTest, VerifySeesHeadsThatTheOrderDoesNotKnow) {
    LruEviction lru;
    OrderScene scene(lru);
    const HeadId a = scene.add(8);
    scene.verify();
    Head stranger = scene.heads.at(a);
    stranger.id = HeadId{5};
    EXPECT_DEATH(scene.order.verify(std::vector<const Head*>{&stranger}), "head 5 is not in the order");
    EXPECT_DEATH(scene.order.verify({}), "1 heads are in the order, 0 live");
    Head moved = scene.heads.at(a);
    moved.blocks.segment = SegmentId{3};
    EXPECT_DEATH(scene.order.verify(std::vector<const Head*>{&moved}), "head 0 lies in segment 3, the order says 0");
}

TEST(EvictionOrderDeathTest, VerifySeesSegmentsThatChangedUnnoticed) {
    LruEviction lru;
    OrderScene scene(lru);
    const HeadId a = scene.add(8);
    EXPECT_EQ(scene.for_blocks(), a);
    const auto attached = scene.kv.attach(scene.heads.at(a).blocks, 8);
    ASSERT_TRUE(attached);
    (void)scene.kv.take_changed();  // what the order should have taken in
    EXPECT_DEATH(scene.verify(), "0 heads may go for blocks, 1 are offered");
}

// Turn heads rank above prompt heads, and more uses above fewer.
class ByKindAndUses final : public EvictionPolicy {
public:
    [[nodiscard]] int64_t rank(const HeadUse& use) override {
        return (use.kind == HeadKind::kTurn ? 100 : 0) + use.num_uses - use.age;
    }
    [[nodiscard]] bool ranks_by_worth() const override { return true; }
    [[nodiscard]] bool goes_by_rank_alone() const override { return true; }
};

// V4: what is worth least and comes back is not the first to go until two more requests have come.
TEST(EvictionOrder, TheLastHeadThatCameBackGoesAfterAllOthersForTwoAdmissions) {
    ByKindAndUses policy;
    OrderScene scene(policy);
    const HeadId turn = scene.add(4, HeadKind::kTurn);
    const HeadId prompt = scene.add(4, HeadKind::kPrompt);
    EXPECT_EQ(scene.for_rows(), prompt);
    scene.order.use(prompt);
    EXPECT_THAT(scene.order.in_order(), ElementsAre(prompt, turn)) << "it is worth less all the same";
    EXPECT_EQ(scene.for_rows(), turn);
    EXPECT_EQ(scene.for_rows({.except = turn}), prompt) << "nothing else is left";
    scene.order.expect(turn);
    EXPECT_EQ(scene.for_rows({.spare_expected = false}), prompt) << "a request waits for the other one";
    scene.order.unexpect(turn);
    scene.order.tick();
    EXPECT_EQ(scene.for_rows(), turn);
    scene.order.tick();
    EXPECT_EQ(scene.for_rows(), prompt);
    scene.verify();
}

TEST(EvictionOrder, AHeadThatTakesThePlaceOfAGhostThatWasMetHasComeBack) {
    ByKindAndUses policy;
    for (const bool is_met : {false, true}) {
        OrderScene scene(policy);
        scene.add(4, HeadKind::kTurn);
        const HeadId gone = scene.add(4, HeadKind::kPrompt);
        scene.order.remove_to_ghost(gone);
        if (is_met) scene.order.use_ghost(gone);
        Head again = scene.heads.at(gone);
        again.id = HeadId{7};
        scene.order.add(again, gone);
        EXPECT_EQ(scene.for_rows() == again.id, !is_met);
    }
}

TEST(EvictionOrder, AHeadStandsInForALongerOneThatGoes) {
    ByKindAndUses policy;
    OrderScene scene(policy);
    const HeadId shorter = scene.add(4, HeadKind::kPrompt);
    const HeadId other = scene.add(4, HeadKind::kPrompt);
    const HeadId longer = scene.add(8, HeadKind::kTurn);
    scene.order.use(other);
    EXPECT_THAT(scene.order.in_order(), ElementsAre(shorter, other, longer));
    scene.order.stand_in(shorter, longer);
    scene.remove(longer);
    EXPECT_THAT(scene.order.in_order(), ElementsAre(other, shorter)) << "it ranks as the turn head did";
    scene.verify();
}

TEST(EvictionOrder, AHeadThatPromisesMoreThanTheOneThatGoesStaysAsItIs) {
    ByKindAndUses policy;
    OrderScene scene(policy);
    const HeadId shorter = scene.add(4, HeadKind::kTurn);
    const HeadId other = scene.add(4, HeadKind::kTurn);
    const HeadId longer = scene.add(8, HeadKind::kPrompt);
    scene.order.use(shorter);
    scene.order.stand_in(shorter, longer);
    scene.remove(longer);
    EXPECT_THAT(scene.order.in_order(), ElementsAre(other, shorter));
    scene.verify();
}

}  // namespace
}  // namespace verbatim
