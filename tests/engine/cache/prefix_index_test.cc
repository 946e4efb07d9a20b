#include "engine/cache/prefix_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <string>
#include <utility>

#include "engine/base/prng.h"

namespace verbatim {
namespace {

// Heads with names of their own numbers, and the index over them.
struct NamedHeads {
    HeadId add(const std::vector<TokenId>& tokens, std::optional<std::string> salt = {}, std::string numerics = "a/1") {
        Head& head = heads.emplace_back();
        head.id = HeadId{static_cast<int64_t>(heads.size())};
        head.salt.value = std::move(salt);
        head.tokens = store.store(tokens);
        head.numerics_id = std::move(numerics);
        head.in_prefix_index = true;
        index.insert(head);
        return head.id;
    }
    std::optional<HeadId> find(const std::vector<TokenId>& tokens, int64_t max_length,
                               std::optional<std::string> salt = {}) {
        const std::string numerics = "a/1";
        return index.longest_prefix({std::move(salt)}, store.store(tokens), max_length, &numerics);
    }

    TokenStore store{100};
    std::deque<Head> heads;
    PrefixIndex index;
};

TEST(PrefixIndex, FindsTheLongestPrefixWithinTheLength) {
    NamedHeads scene;
    const HeadId one = scene.add({1});
    const HeadId three = scene.add({1, 2, 3});
    scene.add({1, 2, 4});
    EXPECT_EQ(scene.find({1, 2, 3, 9}, 4), three);
    EXPECT_EQ(scene.find({1, 2, 3, 9}, 3), three);
    EXPECT_EQ(scene.find({1, 2, 3, 9}, 2), one);
    EXPECT_EQ(scene.find({2, 1}, 2), std::nullopt);
}

TEST(PrefixIndex, TheNewestAmongEqualsIsFound) {
    NamedHeads scene;
    scene.add({1, 2});
    const HeadId second = scene.add({1, 2});
    EXPECT_EQ(scene.find({1, 2, 3}, 3), second);
    scene.index.erase(scene.heads.back());
    EXPECT_EQ(scene.find({1, 2, 3}, 3), HeadId{1});
}

TEST(PrefixIndex, NoSaltAndTheEmptySaltAreDifferent) {
    NamedHeads scene;
    const HeadId unsalted = scene.add({1, 2});
    const HeadId empty = scene.add({1}, "");
    EXPECT_EQ(scene.find({1, 2, 3}, 3), unsalted);
    EXPECT_EQ(scene.find({1, 2, 3}, 3, ""), empty);
    EXPECT_EQ(scene.find({1, 2, 3}, 3, "x"), std::nullopt);
}

TEST(PrefixIndex, HeadsOfOtherNumericsArePassedOver) {
    NamedHeads scene;
    const HeadId own = scene.add({1});
    scene.add({1, 2}, {}, "b/1");
    EXPECT_EQ(scene.find({1, 2, 3}, 3), own);
}

TEST(PrefixIndex, AgreesWithTryingEveryHead) {
    for (uint64_t seed = 0; seed < 200; ++seed) {
        SCOPED_TRACE(seed);
        Prng prng(seed);
        NamedHeads scene;
        const auto draw = [&] {
            std::vector<TokenId> tokens(1 + prng.below(6));
            for (TokenId& token : tokens) token = static_cast<TokenId>(prng.below(2));
            return tokens;
        };
        for (uint64_t i = prng.below(20); i > 0; --i) scene.add(draw(), {}, prng.below(4) == 0 ? "b/1" : "a/1");
        const std::vector<TokenId> wanted = draw();
        const auto max_length = static_cast<int64_t>(prng.below(7));
        std::optional<HeadId> best;
        int64_t length = -1;
        for (const Head& head : scene.heads) {
            const bool fits = head.length() <= max_length && head.numerics_id == "a/1";
            if (!fits || head.length() < length || !scene.store.store(wanted).starts_with(head.tokens)) continue;
            best = head.id;
            length = head.length();
        }
        EXPECT_EQ(scene.find(wanted, max_length), best);
    }
}

TEST(PrefixIndex, WhatHasMostInCommonAgreesWithTryingEveryHead) {
    for (uint64_t seed = 0; seed < 400; ++seed) {
        SCOPED_TRACE(seed);
        Prng prng(seed);
        NamedHeads scene;
        const auto draw = [&] {
            std::vector<TokenId> tokens(1 + prng.below(6));
            for (TokenId& token : tokens) token = static_cast<TokenId>(prng.below(2));
            return tokens;
        };
        for (uint64_t i = prng.below(20); i > 0; --i) scene.add(draw(), {}, prng.below(4) == 0 ? "b/1" : "a/1");
        const TokenSeq wanted = scene.store.store(draw());
        int64_t most = 0;
        for (const Head& head : scene.heads) {
            if (head.numerics_id == "a/1") most = std::max(most, wanted.common_prefix(head.tokens));
        }
        const std::string numerics = "a/1";
        const auto found = scene.index.longest_common({}, wanted, &numerics);
        ASSERT_EQ(found.has_value(), most > 0);
        if (!found) continue;
        EXPECT_EQ(found->length, most);
        const Head& head = scene.heads.at(static_cast<size_t>(index(found->head)) - 1);
        EXPECT_EQ(wanted.common_prefix(head.tokens), most);
        EXPECT_EQ(head.numerics_id, numerics);
        EXPECT_FALSE(scene.index.longest_common({"x"}, wanted, &numerics));
    }
}

TEST(PrefixIndexDeathTest, VerifySeesAHeadThatChangedUnderTheIndex) {
    NamedHeads scene;
    scene.add({1, 2});
    scene.add({1, 3});
    scene.index.verify();
    Head& first = scene.heads.front();
    const TokenSeq before = std::exchange(first.tokens, scene.store.store(std::vector<TokenId>{1, 4}));
    EXPECT_DEATH(scene.index.verify(), "head 2 comes after head 1");
    first.tokens = before;
    first.salt.value = "x";
    EXPECT_DEATH(scene.index.verify(), "head 2 comes after head 1");
    first.salt.value = std::nullopt;
    first.in_prefix_index = false;
    EXPECT_DEATH(scene.index.verify(), "head 1 is in the index and does not know");
}

TEST(PrefixIndexDeathTest, AHeadIsInsertedAndErasedOnce) {
    NamedHeads scene;
    scene.add({1, 2});
    EXPECT_DEATH(scene.index.insert(scene.heads.front()), "insert");
    scene.index.erase(scene.heads.front());
    EXPECT_DEATH(scene.index.erase(scene.heads.front()), "erase");
}

}  // namespace
}  // namespace verbatim
