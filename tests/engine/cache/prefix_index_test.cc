#include "engine/cache/prefix_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <string>
#include <utility>

#include "engine/base/prng.h"

namespace verbatim {
namespace {

// Heads named by their numbers, and the index over them.
struct NamedHeads {
    HeadId add(const std::vector<TokenId>& tokens, std::optional<std::string> salt = {}, std::string numerics = "a/1") {
        Head& head = heads.emplace_back();
        head.id = HeadId{static_cast<int64_t>(heads.size())};
        head.salt = CacheSalt{std::move(salt)};
        head.tokens = store.store(tokens);
        head.numerics_id = std::move(numerics);
        head.in_prefix_index = true;
        index.insert(head);
        return head.id;
    }
    std::optional<HeadId> find(const std::vector<TokenId>& tokens, int64_t max_length,
                               std::optional<std::string> salt = {}) {
        const std::string numerics = "a/1";
        const CacheSalt of{std::move(salt)};
        const TokenSeq wanted = store.store(tokens);
        const Head* found = index.longest_prefix({.salt = of, .tokens = wanted, .numerics_id = &numerics}, max_length);
        return found == nullptr ? std::nullopt : std::optional(found->id);
    }
    Head& head(HeadId id) { return heads.at(static_cast<size_t>(verbatim::index(id)) - 1); }
    void erase(HeadId id) {
        index.erase(head(id));
        head(id).in_prefix_index = false;
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

// Heads come and go, with prefixes of one another among them; every search agrees with trying every head, from any head
// that is known to be a prefix.
TEST(PrefixIndex, AgreesWithTryingEveryHeadWhileHeadsComeAndGo) {
    for (uint64_t seed = 0; seed < 60; ++seed) {
        SCOPED_TRACE(seed);
        Prng prng(seed);
        NamedHeads scene;
        std::vector<HeadId> alive;
        const auto draw = [&] {
            std::vector<TokenId> tokens(1 + prng.below(9));
            for (TokenId& token : tokens) token = static_cast<TokenId>(prng.below(2));
            return tokens;
        };
        const auto salt_of = [&]() -> std::optional<std::string> {
            return prng.below(4) == 0 ? std::optional<std::string>("s") : std::nullopt;
        };
        for (int step = 0; step < 120; ++step) {
            if (alive.empty() || prng.below(5) < 3) {
                alive.push_back(scene.add(draw(), salt_of(), prng.below(4) == 0 ? "b/1" : "a/1"));
            } else {
                const size_t gone = prng.below(alive.size());
                scene.erase(alive[gone]);
                alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(gone));
            }
            scene.index.verify();
            ASSERT_EQ(scene.index.size(), alive.size());
            ASSERT_LE(scene.index.num_nodes(), 2 * alive.size() + 3) << "two nodes a head, and the roots";

            const CacheSalt salt{salt_of()};
            const TokenSeq wanted = scene.store.store(draw());
            const auto max_length = static_cast<int64_t>(prng.below(10));
            const std::string numerics = "a/1";
            const bool any = prng.below(3) == 0;
            const Head* longest = nullptr;
            const Head* known = nullptr;
            int64_t most = 0;
            for (const HeadId id : alive) {
                const Head& head = scene.head(id);
                if (head.salt != salt || (!any && head.numerics_id != numerics)) continue;
                most = std::max(most, wanted.common_prefix(head.tokens));
                if (head.length() > max_length || !wanted.starts_with(head.tokens)) continue;
                if (longest == nullptr || head.length() >= longest->length()) longest = &head;
                if (prng.below(2) == 0) known = &head;
            }
            const PrefixIndex::Query query{salt, wanted, any ? nullptr : &numerics, known};
            ASSERT_EQ(scene.index.longest_prefix(query, max_length), longest);
            const PrefixIndex::Common common = scene.index.longest_common(query);
            ASSERT_EQ(common.length, most);
            ASSERT_EQ(common.head == nullptr, most == 0);
            if (common.head != nullptr) ASSERT_EQ(wanted.common_prefix(common.head->tokens), most);

            if (alive.empty()) continue;
            const Head& head = scene.head(alive[prng.below(alive.size())]);
            const Head* shorter = nullptr;
            for (const HeadId id : alive) {
                const Head& other = scene.head(id);
                const bool is_one = other.salt == head.salt && other.numerics_id == head.numerics_id &&
                                    other.length() < head.length() && head.tokens.starts_with(other.tokens);
                if (is_one && (shorter == nullptr || other.length() >= shorter->length())) shorter = &other;
            }
            ASSERT_EQ(scene.index.longest_prefix_of(head), shorter);
        }
        for (const HeadId id : alive) scene.erase(id);
        EXPECT_EQ(scene.index.num_nodes(), 0u);
    }
}

// What a salt has left behind when its last head goes would add up: tenants come and go.
TEST(PrefixIndex, ASaltWithoutHeadsLeavesNothing) {
    NamedHeads scene;
    for (int i = 0; i < 100; ++i) scene.erase(scene.add({1, 2, 3}, std::to_string(i)));
    EXPECT_EQ(scene.index.num_nodes(), 0u);
    scene.index.verify();
}

// The tokens that other heads begin with stay known by one of those: the list of a head that is gone goes, too.
TEST(PrefixIndex, TheTokensOfAHeadGoWithIt) {
    NamedHeads scene;
    const HeadId gone = scene.add({1, 2, 3});
    scene.add({1, 2, 4});
    scene.add({1, 2, 5});
    scene.erase(gone);
    scene.head(gone).tokens = {};
    EXPECT_EQ(scene.store.num_stored_sources(), 2u);
    EXPECT_EQ(scene.find({1, 2, 4, 5}, 4), HeadId{2});
}

TEST(PrefixIndex, OfHeadsThatHaveAsMuchInCommonTheOneOfTheFirstArithmeticIsFound) {
    NamedHeads scene;
    const HeadId first = scene.add({1, 2, 3}, {}, "b/1");
    scene.add({1, 2, 4}, {}, "a/1");
    const CacheSalt salt;
    const TokenSeq wanted = scene.store.store(std::vector<TokenId>{1, 2, 9});
    const PrefixIndex::Common common = scene.index.longest_common({salt, wanted});
    EXPECT_EQ(common.length, 2);
    EXPECT_EQ(common.head, &scene.head(first));
}

TEST(PrefixIndex, WalksUpwardsAreCountedToo) {
    NamedHeads scene;
    const HeadId shortest = scene.add({1});
    const HeadId longer = scene.add({1, 2, 3});
    scene.add({1, 2, 4});
    const int64_t before = scene.index.num_visits();
    EXPECT_EQ(scene.index.longest_prefix_of(scene.head(longer)), &scene.head(shortest));
    EXPECT_EQ(scene.index.num_visits() - before, 2) << "where the longer ones part, and the shortest";
    scene.erase(longer);
    EXPECT_EQ(scene.index.num_visits() - before, 4) << "its node, and where the longer ones parted";
}

// Nodes that a search looks at: as many as heads lie on its way, and none that are known already.
TEST(PrefixIndex, ASearchFromAKnownHeadLooksAtWhatIsBeyondItOnly) {
    NamedHeads scene;
    std::vector<TokenId> tokens;
    HeadId last = kNoHead;
    for (TokenId i = 0; i < 90; ++i) {
        tokens.push_back(i);
        last = scene.add(tokens);
    }
    tokens.push_back(99);
    const std::string numerics = "a/1";
    const TokenSeq wanted = scene.store.store(tokens);
    const CacheSalt salt;
    const auto visits = [&](const Head* known) {
        const int64_t before = scene.index.num_visits();
        const PrefixIndex::Query query{salt, wanted, &numerics, known};
        EXPECT_EQ(scene.index.longest_prefix(query, 91), &scene.head(last));
        return scene.index.num_visits() - before;
    };
    EXPECT_EQ(visits(nullptr), 90);
    EXPECT_EQ(visits(&scene.head(last)), 0);
}

// A lookup among a million heads looks at as many nodes as one among a thousand, where as many heads are on its way.
TEST(PrefixIndex, ALookupLooksAtNoMoreAmongManyHeads) {
    const auto most_visits = [](int64_t num_heads) {
        TokenStore store(50'000);
        std::deque<Head> heads;
        PrefixIndex index;
        for (int64_t i = 0; i < num_heads; ++i) {
            Head& head = heads.emplace_back();
            head.id = HeadId{i};
            head.tokens = store.derive(static_cast<uint64_t>(i), 0, 40);
            head.in_prefix_index = true;
            index.insert(head);
        }
        int64_t most = 0;
        for (int64_t i = 0; i < num_heads; i += num_heads / 500) {
            const int64_t before = index.num_visits();
            const TokenSeq wanted = store.derive(static_cast<uint64_t>(i), 0, 60);
            EXPECT_EQ(index.longest_prefix({{}, wanted}, 59), &heads[static_cast<size_t>(i)]);
            most = std::max(most, index.num_visits() - before);
        }
        return most;
    };
    EXPECT_LE(most_visits(1'000), 4);
    EXPECT_LE(most_visits(100'000), 4);
}

TEST(PrefixIndexDeathTest, VerifySeesAHeadThatChangedUnderTheIndex) {
    NamedHeads scene;
    scene.add({1, 2});
    scene.add({1, 3});
    scene.index.verify();
    Head& first = scene.heads.front();
    const TokenSeq before = std::exchange(first.tokens, scene.store.store(std::vector<TokenId>{1, 4}));
    EXPECT_DEATH(scene.index.verify(), "the witness of node 1 has other tokens");
    first.tokens = before;
    first.salt = CacheSalt{"x"};
    EXPECT_DEATH(scene.index.verify(), "head 1 lies under another salt");
    first.salt = CacheSalt{};
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
