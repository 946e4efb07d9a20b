// What an eviction policy hears of heads and ghosts, and that what it says of them moves them in the order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/cache/eviction.h"
#include "engine/tokens/token_seq.h"

namespace verbatim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Reached = std::pair<int32_t, int32_t>;  // class, age

// Keeps the calls. Ranks turns above the other kinds, then by uses, generation and age; or by what the head saves.
class KeepingPolicy : public EvictionPolicy {
public:
    [[nodiscard]] int64_t rank(const HeadUse& use) override {
        ranked[use.head] = use;
        if (use.worth.operations > 0) return use.worth.operations;
        return (use.kind == HeadKind::kTurn ? 1000 : 0) + 100 * use.num_uses + 10 * use.generation - use.age;
    }
    [[nodiscard]] bool ranks_by_worth() const override { return true; }
    [[nodiscard]] bool goes_by_rank_alone() const override { return true; }
    void note_used(const HeadClass& head, int32_t age) override { used.emplace_back(head.num_uses, age); }
    void note_reached(int32_t head_class, int32_t age) override { reached.emplace_back(head_class, age); }

    std::map<HeadId, HeadUse> ranked;               // the last time
    std::vector<std::pair<int64_t, int32_t>> used;  // uses before, age
    std::vector<Reached> reached;
};

struct UsesScene {
    explicit UsesScene(EvictionPolicy& policy) : order(policy, kv) {}

    // A head of one block.
    HeadId add(HeadKind kind = HeadKind::kTurn, int32_t generation = 0) {
        const HeadId id{static_cast<int64_t>(heads.size())};
        order.add(make(id, kind, generation));
        return id;
    }
    const Head& make(HeadId id, HeadKind kind, int32_t generation = 0) {
        BlockTable sequence;
        EXPECT_TRUE(kv.grow(sequence, 4));
        const BlockTable blocks = kv.detach_as_pending(sequence, 4, kNoStep);
        kv.publish(blocks, id);
        Head& head = heads[id];
        head.id = id;
        head.kind = kind;
        head.generation = generation;
        head.tokens = store.derive(0, 0, 4);
        head.blocks = blocks;
        return head;
    }
    void age(int32_t num_admissions) {
        for (int32_t i = 0; i < num_admissions; ++i) order.tick();
    }
    // The policy has ranked every head.
    void rank_all() { (void)order.first(Pool::kState, {}); }

    TokenStore store{1000};
    KvGroup kv{true, 4, 64};
    EvictionOrder order;
    std::map<HeadId, Head> heads;
};

int32_t class_of(HeadKind kind, int64_t num_uses, int32_t generation = 0) {
    return ReuseModel::class_of({.kind = kind, .num_uses = num_uses, .generation = generation});
}

TEST(EvictionUses, APolicyHearsOfEveryAgeThatAHeadComesTo) {
    KeepingPolicy policy;
    UsesScene scene(policy);
    const HeadId head = scene.add(HeadKind::kTurn, 2);
    const int32_t unused = class_of(HeadKind::kTurn, 0, 2);
    const int32_t used_once = class_of(HeadKind::kTurn, 1, 2);
    EXPECT_THAT(policy.reached, ElementsAre(Reached{unused, 0}));
    scene.age(3);
    EXPECT_THAT(policy.reached, ElementsAre(Reached{unused, 0}, Reached{unused, 1}, Reached{unused, 2},
                                            Reached{unused, ReuseModel::bucket_of(3)}));
    policy.reached.clear();
    scene.order.use(head);
    EXPECT_THAT(policy.used, ElementsAre(std::pair{int64_t{0}, ReuseModel::bucket_of(3)}));
    EXPECT_THAT(policy.reached, ElementsAre(Reached{used_once, 0}));
    scene.age(2);
    EXPECT_THAT(policy.reached, ElementsAre(Reached{used_once, 0}, Reached{used_once, 1}, Reached{used_once, 2}))
        << "its age began again, in another class";
}

TEST(EvictionUses, APolicyHearsOfTheAgesOfAGhost) {
    KeepingPolicy policy;
    UsesScene scene(policy);
    const HeadId head = scene.add(HeadKind::kBranch);
    scene.order.remove_to_ghost(head);
    scene.age(1);
    policy.reached.clear();
    scene.order.use_ghost(head);
    const int32_t used_once = class_of(HeadKind::kBranch, 1);
    EXPECT_THAT(policy.reached, ElementsAre(Reached{used_once, 0}));
    scene.age(2);
    EXPECT_THAT(policy.reached, ElementsAre(Reached{used_once, 0}, Reached{used_once, 1}, Reached{used_once, 2}));
    scene.order.forget_ghost(head);
    policy.reached.clear();
    scene.age(9);
    EXPECT_THAT(policy.reached, IsEmpty());
}

TEST(EvictionUses, AUsedHeadIsRankedAsOneOfNoAge) {
    KeepingPolicy policy;
    UsesScene scene(policy);
    const HeadId head = scene.add();
    scene.rank_all();
    scene.age(10);
    EXPECT_EQ(policy.ranked.at(head).age, ReuseModel::bucket_of(10));
    scene.order.use(head);
    EXPECT_EQ(policy.ranked.at(head).age, 0);
    EXPECT_EQ(policy.ranked.at(head).num_uses, 1);
}

// Of policies that do not rank by age, no head has one.
TEST(EvictionUses, WithoutAgesEveryHeadIsOfNoAge) {
    class Ageless final : public KeepingPolicy {
        [[nodiscard]] bool ranks_by_worth() const override { return false; }
    };
    Ageless policy;
    UsesScene scene(policy);
    const HeadId head = scene.add();
    scene.age(10);
    EXPECT_EQ(policy.ranked.at(head).age, 0);
    scene.order.use(head);
    EXPECT_THAT(policy.used, ElementsAre(std::pair{int64_t{0}, 0}));
}

TEST(EvictionUses, AHeadFallsInTheOrderAsItGrowsOlder) {
    KeepingPolicy policy;
    UsesScene scene(policy);
    const HeadId older = scene.add(HeadKind::kTurn, 1);
    scene.rank_all();
    const HeadId younger = scene.add(HeadKind::kTurn, 0);
    EXPECT_THAT(scene.order.in_order(), ElementsAre(younger, older));
    scene.age(100);
    scene.order.remove(younger);
    const HeadId youngest = scene.add(HeadKind::kTurn, 0);
    EXPECT_THAT(scene.order.in_order(), ElementsAre(older, youngest)) << "1010 - 13 and 1000";
}

// Two heads of a kind: the longer one, which goes, is younger, was used, and is of a later generation.
TEST(EvictionUses, AHeadThatStandsInTakesOverUsesGenerationAndAge) {
    for (const bool is_ranked : {false, true}) {
        KeepingPolicy policy;
        UsesScene scene(policy);
        const HeadId shorter = scene.add(HeadKind::kPrompt, 1);
        scene.age(20);
        const HeadId between = scene.add(HeadKind::kTurn, 0);
        const HeadId longer = scene.add(HeadKind::kTurn, 3);
        scene.order.use(longer);
        scene.age(2);
        if (is_ranked) scene.rank_all();
        scene.order.stand_in(shorter, longer);
        scene.order.remove(longer);
        EXPECT_THAT(scene.order.in_order(), ElementsAre(between, shorter)) << is_ranked;
        const HeadUse& use = policy.ranked.at(shorter);
        EXPECT_EQ(use.kind, HeadKind::kTurn);
        EXPECT_EQ(use.num_uses, 1);
        EXPECT_EQ(use.generation, 3);
        EXPECT_EQ(use.age, ReuseModel::bucket_of(2));
        policy.reached.clear();
        scene.age(2);
        EXPECT_THAT(policy.reached, ::testing::Contains(Reached{class_of(HeadKind::kTurn, 1, 3), 4}))
            << "it grows older as the longer one would";
    }
}

// Nothing but its age is against it, and no head has been ranked yet.
TEST(EvictionUses, AnOldHeadStandsInForAYoungOneOfItsKind) {
    KeepingPolicy policy;
    UsesScene scene(policy);
    const HeadId shorter = scene.add();
    scene.age(20);
    const HeadId between = scene.add();
    scene.age(4);
    const HeadId longer = scene.add();
    scene.age(2);
    EXPECT_THAT(scene.order.in_order(), ElementsAre(shorter, between, longer));
    scene.order.stand_in(shorter, longer);
    scene.order.remove(longer);
    EXPECT_THAT(scene.order.in_order(), ElementsAre(between, shorter));
}

TEST(EvictionUses, WhatIsWorthMoreThanWhenItWasRankedStays) {
    KeepingPolicy policy;
    UsesScene scene(policy);
    std::map<HeadId, int64_t> worth;
    scene.order.set_worth([&](const Head& head) { return HeadValue{.operations = worth.at(head.id), .bytes = 1}; });
    worth = {{HeadId{0}, 10}, {HeadId{1}, 20}, {HeadId{2}, 30}};
    for (int i = 0; i < 3; ++i) scene.add();
    EXPECT_EQ(scene.order.first(Pool::kState, {}), HeadId{0});
    worth[HeadId{0}] = 25;
    EXPECT_EQ(scene.order.first(Pool::kState, {}), HeadId{1});
    worth[HeadId{1}] = 40;
    EXPECT_EQ(scene.order.first(Pool::kState, {}), HeadId{0});
    EXPECT_THAT(scene.order.in_order(), ElementsAre(HeadId{0}, HeadId{2}, HeadId{1}));
}

// A policy of ages that offers heads for blocks by segments; verify() has taken in what changed.
TEST(EvictionUses, HeadsThatAreRankedLateAreOfferedForBlocks) {
    class BySegments final : public KeepingPolicy {
        [[nodiscard]] bool goes_by_rank_alone() const override { return false; }
    };
    BySegments policy;
    UsesScene scene(policy);
    const HeadId head = scene.add();
    scene.order.verify(std::vector<const Head*>{&scene.heads.at(head)});
    EXPECT_EQ(scene.order.first(Pool::kKv, {}), head);
}

TEST(EvictionUses, ForBlocksNoKindIsSpared) {
    LruEviction lru;
    UsesScene scene(lru);
    const HeadId turn = scene.add();
    EXPECT_EQ(scene.order.first(Pool::kKv, {.spare_proven = true}), turn);
    EXPECT_EQ(scene.order.first(Pool::kState, {.spare_proven = true}), std::nullopt);
}

TEST(EvictionUses, EveryKeyAndHeadThatIsLookedAtIsCounted) {
    LruEviction lru;
    UsesScene scene(lru);
    const auto visits = [&](UsesScene& of, const auto& call) {
        const int64_t before = of.order.num_visits();
        call();
        return of.order.num_visits() - before;
    };
    scene.add();
    scene.add();
    EXPECT_EQ(visits(scene, [&] { (void)scene.order.first(Pool::kState, {}); }), 1);
    EXPECT_EQ(visits(scene, [&] { (void)scene.order.first(Pool::kKv, {}); }), 5) << "two segments, their heads, a key";
    EXPECT_EQ(visits(scene, [&] { (void)scene.order.first(Pool::kKv, {.except = HeadId{0}}); }), 2);
    EXPECT_EQ(visits(scene, [&] { (void)scene.order.first(Pool::kState, {.spare_proven = true}); }), 1)
        << "behind one that is spared lie no others";
    KeepingPolicy policy;
    UsesScene aged(policy);
    aged.add();
    aged.add();
    EXPECT_EQ(visits(aged, [&] { aged.age(2); }), 4) << "both come to two ages at once";
}

TEST(ValueEviction, OneByteIsHalfOfTwoAndNoneCountsAsOne) {
    ValueEviction policy;
    const auto rank = [&](int64_t bytes) {
        return policy.rank({.head = HeadId{1}, .length = 10, .worth = {.operations = 1000, .bytes = bytes}});
    };
    EXPECT_EQ(rank(1) - rank(2), 1 << 16);
    EXPECT_EQ(rank(0), rank(1));
}

}  // namespace
}  // namespace verbatim
