#include "engine/cache/prefix_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace verbatim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kStep = PrefixHistory::kStep;

struct HistoryScene {
    TokenSeq stored(int64_t length, TokenId first = 0) {
        std::vector<TokenId> ids(static_cast<size_t>(length));
        std::iota(ids.begin(), ids.end(), first);
        return store.store(ids);
    }
    static TokenSeq joined(TokenSeq a, const TokenSeq& b) {
        a.append(b);
        return a;
    }
    PrefixHistory::Met observe(const TokenSeq& prompt) { return history.observe(PrefixHistory::begin({}), 0, prompt); }
    void add_ghost(HeadId head, const TokenSeq& tokens) {
        history.add_ghost(head, NotReused::kEvicted, PrefixHistory::extend(PrefixHistory::begin({}), tokens), tokens);
    }

    TokenStore store{1 << 20};
    PrefixHistory history{1000};
};

TEST(PrefixHistory, APromptIsKnownUpToTheLastBoundaryThatAnEarlierOneHad) {
    HistoryScene scene;
    const TokenSeq shared = scene.stored(3 * kStep + 100);
    EXPECT_EQ(scene.observe(HistoryScene::joined(shared, scene.stored(500, 10'000))).known_length, 0);
    EXPECT_EQ(scene.observe(HistoryScene::joined(shared, scene.stored(500, 20'000))).known_length, 3 * kStep);
    EXPECT_EQ(scene.observe(scene.stored(2000, 5)).known_length, 0);
    scene.history.verify();
}

TEST(PrefixHistory, StoredTokensAreKnownHoweverTheyWereStored) {
    HistoryScene scene;
    (void)scene.observe(scene.stored(2 * kStep));
    const TokenSeq in_parts = HistoryScene::joined(scene.stored(77), scene.stored(2 * kStep - 77, 77));
    ASSERT_EQ(in_parts, scene.stored(2 * kStep));
    EXPECT_EQ(scene.observe(in_parts).known_length, 2 * kStep);
}

TEST(PrefixHistory, DerivedTokensAreKnownByTheirPlace) {
    HistoryScene scene;
    (void)scene.observe(scene.store.derive(7, 0, 4 * kStep));
    const TokenSeq longer = HistoryScene::joined(scene.store.derive(7, 0, 3 * kStep), scene.store.derive(8, 0, kStep));
    EXPECT_EQ(scene.observe(longer).known_length, 3 * kStep);
}

TEST(PrefixHistory, SaltsAreApart) {
    HistoryScene scene;
    const TokenSeq prompt = scene.stored(3 * kStep);
    (void)scene.observe(prompt);
    const auto other = scene.history.observe(PrefixHistory::begin({.value = ""}), 0, prompt);
    EXPECT_EQ(other.known_length, 0);
    const auto a = PrefixHistory::begin({.value = "a"});
    (void)scene.history.observe(a, 0, prompt);
    EXPECT_EQ(scene.history.observe(PrefixHistory::begin({.value = "b"}), 0, prompt).known_length, 0);
    EXPECT_EQ(scene.history.observe(a, 0, prompt).known_length, 3 * kStep);
}

TEST(PrefixHistory, WhatIsResidentIsNotKnownBeyondIt) {
    HistoryScene scene;
    const TokenSeq prompt = scene.stored(3 * kStep);
    (void)scene.observe(prompt);
    EXPECT_EQ(scene.history.observe(PrefixHistory::begin({}), 3 * kStep, prompt).known_length, 0);
    EXPECT_EQ(scene.history.observe(PrefixHistory::begin({}), 3 * kStep - 1, prompt).known_length, 3 * kStep);
}

// The newest of equal ones, whatever the order in which heads of several lengths went.
TEST(PrefixHistory, TheLongestGhostSaysWhyItWent) {
    HistoryScene scene;
    const auto add = [&](HeadId head, int64_t length, NotReused reason) {
        const TokenSeq tokens = scene.stored(length);
        scene.history.add_ghost(head, reason, PrefixHistory::extend(PrefixHistory::begin({}), tokens), tokens);
    };
    add(HeadId{3}, 20, NotReused::kEvicted);
    add(HeadId{4}, 20, NotReused::kNotRetained);
    add(HeadId{5}, 10, NotReused::kEvicted);
    const PrefixHistory::Met met = scene.observe(scene.stored(100));
    EXPECT_EQ(met.longest_ghost, HeadId{4});
    EXPECT_EQ(met.gone_length, 20);
    EXPECT_EQ(met.gone_reason, NotReused::kNotRetained);
}

TEST(PrefixHistory, AGhostIsMetByPromptsThatBeginWithAllOfItsTokens) {
    HistoryScene scene;
    const TokenSeq tokens = scene.stored(kStep + 10);
    const TokenSeq short_tokens = scene.stored(10);
    scene.add_ghost(HeadId{3}, tokens);
    scene.add_ghost(HeadId{4}, short_tokens);
    const PrefixHistory::Met both = scene.observe(scene.stored(2 * kStep));
    EXPECT_THAT(both.ghosts, ElementsAre(HeadId{4}, HeadId{3}));
    EXPECT_EQ(both.longest_ghost, HeadId{3});
    EXPECT_EQ(both.gone_length, kStep + 10);
    EXPECT_THAT(scene.observe(scene.stored(kStep + 9)).ghosts, ElementsAre(HeadId{4}));
    const TokenSeq parts_inside = HistoryScene::joined(scene.stored(kStep + 9), scene.stored(100, 70'000));
    EXPECT_THAT(scene.observe(parts_inside).ghosts, ElementsAre(HeadId{4}));
    EXPECT_THAT(scene.observe(scene.stored(300, 1)).ghosts, IsEmpty());
}

TEST(PrefixHistory, GhostsWithinResidentTokensAreIgnored) {
    HistoryScene scene;
    scene.add_ghost(HeadId{3}, scene.stored(kStep + 10));
    const TokenSeq prompt = scene.stored(2 * kStep);
    EXPECT_THAT(scene.history.observe(PrefixHistory::begin({}), kStep + 10, prompt).ghosts, IsEmpty());
}

TEST(PrefixHistory, AHeadTakesThePlaceOfItsGhostOnce) {
    HistoryScene scene;
    const TokenSeq tokens = scene.stored(kStep + 10);
    const PrefixChain chain = PrefixHistory::extend(PrefixHistory::begin({}), tokens);
    scene.add_ghost(HeadId{3}, tokens);
    EXPECT_EQ(scene.history.take_ghost(chain, scene.stored(kStep + 9)), std::nullopt);
    EXPECT_EQ(scene.history.take_ghost(chain, tokens), HeadId{3});
    EXPECT_EQ(scene.history.take_ghost(chain, tokens), std::nullopt);
    scene.history.verify();
}

TEST(PrefixHistory, AChainGoesOnWhereItStands) {
    HistoryScene scene;
    const TokenSeq tokens = scene.stored(5 * kStep + 3);
    const PrefixChain whole = PrefixHistory::extend(PrefixHistory::begin({}), tokens);
    const PrefixChain part = PrefixHistory::extend(PrefixHistory::begin({}), tokens.slice(0, 2 * kStep + 9));
    ASSERT_EQ(part.length, 2 * kStep);
    EXPECT_EQ(PrefixHistory::extend(part, tokens).digest, whole.digest);
    EXPECT_EQ(whole.length, 5 * kStep);
}

TEST(PrefixHistory, ForgetsWhatWasMetLongestAgoWithItsGhosts) {
    HistoryScene scene;
    scene.history = PrefixHistory(8);
    std::vector<HeadId> forgotten;
    scene.history.on_forgotten([&](HeadId head) { forgotten.push_back(head); });
    const TokenSeq hot = scene.stored(2 * kStep);
    scene.add_ghost(HeadId{1}, scene.stored(kStep, 1000));
    for (TokenId i = 2; i < 40; ++i) {
        (void)scene.observe(hot);
        (void)scene.observe(scene.stored(kStep, 10'000 * i));
        scene.history.verify();
    }
    EXPECT_THAT(forgotten, ElementsAre(HeadId{1}));
    EXPECT_EQ(scene.observe(hot).known_length, 2 * kStep) << "what is met again and again stays";
    EXPECT_EQ(scene.history.num_boundaries(), 8u);
    EXPECT_GT(scene.history.num_bytes(), 0);
}

TEST(PrefixHistory, WhatWasMetTwiceIsForgottenWhenItIsNotMetAgain) {
    HistoryScene scene;
    scene.history = PrefixHistory(8);
    const TokenSeq once_hot = scene.stored(2 * kStep);
    for (int i = 0; i < 3; ++i) (void)scene.observe(once_hot);
    for (TokenId i = 2; i < 40; ++i) (void)scene.observe(scene.stored(kStep, 10'000 * i));
    EXPECT_EQ(scene.observe(once_hot).known_length, 0);
}

TEST(PrefixHistory, GhostsAloneKeepNoMoreBoundariesThanAreAllowed) {
    HistoryScene scene;
    scene.history = PrefixHistory(8);
    for (TokenId i = 0; i < 40; ++i) {
        scene.add_ghost(HeadId{i}, scene.stored(kStep, 10'000 * i));
        scene.history.verify();
    }
    EXPECT_EQ(scene.history.num_boundaries(), 8u);
}

// Some 80 bytes of a boundary, as the usual size says.
TEST(PrefixHistory, BytesAreOfBoundariesAndGhosts) {
    constexpr int64_t kBoundaries = 1 << 12;
    HistoryScene scene;
    scene.history = PrefixHistory(kBoundaries);
    (void)scene.observe(scene.stored(kStep * (kBoundaries - 1)));
    ASSERT_EQ(scene.history.num_boundaries(), static_cast<size_t>(kBoundaries));
    const int64_t num_bytes = scene.history.num_bytes();
    EXPECT_GT(num_bytes, 64 * kBoundaries);
    EXPECT_LE(num_bytes, 80 * kBoundaries);
    scene.add_ghost(HeadId{1}, scene.stored(1));
    EXPECT_GT(scene.history.num_bytes(), num_bytes);
}

TEST(PrefixHistory, GhostsOfOneBoundaryAreBounded) {
    HistoryScene scene;
    int64_t num_forgotten = 0;
    scene.history.on_forgotten([&](HeadId) { ++num_forgotten; });
    for (TokenId i = 0; i < 200; ++i) scene.add_ghost(HeadId{i}, scene.stored(5, 100 * i));
    EXPECT_EQ(num_forgotten, 200 - static_cast<int64_t>(PrefixHistory::kMaxGhostsPerBoundary));
    scene.history.verify();
}

}  // namespace
}  // namespace verbatim
