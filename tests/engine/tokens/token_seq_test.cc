// Token sequences: shared lists of runs never show, sources live as long as they are shared.
#include "engine/tokens/token_seq.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "engine/base/prng.h"

namespace verbatim {
namespace {

using ::testing::ElementsAre;
using Tokens = std::vector<TokenId>;

TEST(TokenSeq, CopiesAndPrefixesShareTheirRuns) {
    TokenStore store(100);
    TokenSeq whole = store.store(Tokens{1, 2, 3});
    whole.append(store.derive(5, 0, 4));
    const TokenSeq prefix = whole.slice(0, 2);
    const TokenSeq copy = whole;
    EXPECT_THAT(prefix.to_vector(), ElementsAre(1, 2));
    EXPECT_EQ(prefix.num_runs(), 1u);
    EXPECT_EQ(prefix.run(0).length, 2);
    EXPECT_EQ(copy, whole);
    EXPECT_EQ(store.num_stored_sources(), 1u);
}

TEST(TokenSeq, GoingOnFromOneEndTwiceKeepsTheTwoApart) {
    TokenStore store(100);
    const TokenSeq base = store.store(Tokens{1, 2, 3});
    TokenSeq a = base;
    TokenSeq b = base;
    a.append(store.store(Tokens{4, 5}));
    b.append(store.store(Tokens{6}));
    EXPECT_THAT(base.to_vector(), ElementsAre(1, 2, 3));
    EXPECT_THAT(a.to_vector(), ElementsAre(1, 2, 3, 4, 5));
    EXPECT_THAT(b.to_vector(), ElementsAre(1, 2, 3, 6));
    EXPECT_EQ(a.common_prefix(b), 3);
    EXPECT_TRUE(a.starts_with(base));
}

TEST(TokenSeq, GoingOnInTheMiddleOfARunKeepsTheTwoApart) {
    TokenStore store(100);
    const TokenSeq base = store.derive(7, 10, 6);
    TokenSeq cut = base.slice(0, 2);
    cut.append(store.derive(7, 12, 2));  // what lies there anyway
    EXPECT_EQ(cut, base.slice(0, 4));
    EXPECT_EQ(cut.num_runs(), 1u);
    cut.append(store.derive(8, 0, 1));
    EXPECT_EQ(cut.num_runs(), 2u);
    EXPECT_EQ(cut.common_prefix(base), 4);
    EXPECT_EQ(base.size(), 6);
}

TEST(TokenSeq, ASequenceMayBeAppendedToItself) {
    TokenStore store(100);
    TokenSeq twice = store.store(Tokens{1, 2});
    twice.append(twice);
    EXPECT_THAT(twice.to_vector(), ElementsAre(1, 2, 1, 2));
}

TEST(TokenSeq, EqualIdsFromDifferentSourcesAreEqual) {
    TokenStore store(100);
    const TokenSeq derived = store.derive(3, 5, 200);
    TokenSeq stored = store.store(derived.to_vector());
    EXPECT_EQ(stored, derived);
    EXPECT_EQ(stored.common_prefix(derived), 200);
    EXPECT_LT(stored.slice(0, 199), derived);
}

// Two stores give their sources the same numbers.
TEST(TokenSeq, SequencesOfTwoStoresAreComparedByTheirIds) {
    TokenStore one(100);
    TokenStore two(100);
    const TokenSeq first = one.store(std::vector<TokenId>{1, 2, 3});
    EXPECT_EQ(first.common_prefix(two.store(std::vector<TokenId>{1, 2, 4})), 2);
    EXPECT_EQ(first, two.store(std::vector<TokenId>{1, 2, 3}));
    EXPECT_EQ(one.derive(3, 5, 200), two.derive(3, 5, 200));
    TokenStore narrow(7);
    EXPECT_NE(one.derive(3, 5, 200), narrow.derive(3, 5, 200));
}

TEST(TokenSeq, ASourceLivesAsLongAsItIsShared) {
    TokenStore store(100);
    {
        TokenSeq rest;
        {
            TokenSeq whole = store.store(Tokens{1, 2, 3});
            whole.append(store.store(Tokens{4}));
            EXPECT_EQ(store.stored_tokens(), 4u);
            rest = whole.slice(3, 4);  // a separate list
        }
        EXPECT_EQ(store.stored_tokens(), 1u);
        EXPECT_THAT(rest.to_vector(), ElementsAre(4));
    }
    EXPECT_EQ(store.num_stored_sources(), 0u);
}

// Random operations on sequences that share lists, compared with vectors that share nothing.
TEST(TokenSeq, BehavesLikeAVectorOfTokens) {
    struct Pair {
        TokenSeq seq;
        Tokens tokens;
    };
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        SCOPED_TRACE(seed);
        Prng prng(seed);
        TokenStore store(4);
        std::vector<Pair> pairs(1);
        for (int step = 0; step < 120; ++step) {
            Pair pair = pairs[prng.below(pairs.size())];
            const auto size = static_cast<uint64_t>(pair.seq.size());
            const uint64_t end = prng.below(size + 1);
            const uint64_t begin = prng.below(2) == 0 ? 0 : prng.below(end + 1);
            TokenSeq more = store.derive(prng.below(3), static_cast<int64_t>(prng.below(6)), 3);
            if (prng.below(3) == 0) more = pairs[prng.below(pairs.size())].seq.slice(0, 0);
            if (prng.below(3) == 0) more = store.store(more.to_vector());
            switch (prng.below(3)) {
                case 0:
                    pair = {pair.seq.slice(static_cast<int64_t>(begin), static_cast<int64_t>(end)),
                            Tokens(pair.tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                                   pair.tokens.begin() + static_cast<std::ptrdiff_t>(end))};
                    break;
                case 1: more = pairs[prng.below(pairs.size())].seq; [[fallthrough]];
                default: {
                    if (size + static_cast<uint64_t>(more.size()) > 60) continue;
                    const Tokens ids = more.to_vector();
                    pair.seq.append(more);
                    pair.tokens.insert(pair.tokens.end(), ids.begin(), ids.end());
                }
            }
            pairs.push_back(std::move(pair));
            if (pairs.size() > 8) pairs.erase(pairs.begin() + static_cast<std::ptrdiff_t>(prng.below(pairs.size())));
            for (const Pair& a : pairs) {
                ASSERT_EQ(a.seq.to_vector(), a.tokens);
                int64_t total = 0;
                for (size_t i = 0; i < a.seq.num_runs(); ++i) total += a.seq.run(i).length;
                ASSERT_EQ(total, a.seq.size());
                for (const Pair& b : pairs) {
                    const auto limit = std::min(a.tokens.size(), b.tokens.size());
                    const auto differ =
                        std::mismatch(a.tokens.begin(), a.tokens.begin() + static_cast<std::ptrdiff_t>(limit),
                                      b.tokens.begin())
                            .first -
                        a.tokens.begin();
                    ASSERT_EQ(a.seq.common_prefix(b.seq), differ);
                    const auto known = static_cast<int64_t>(prng.below(static_cast<uint64_t>(differ) + 1));
                    ASSERT_EQ(a.seq.common_prefix(b.seq, known), differ);
                    ASSERT_EQ(a.seq <=> b.seq, a.tokens <=> b.tokens);
                }
            }
        }
        pairs.clear();
        EXPECT_EQ(store.num_stored_sources(), 0u);
    }
}

}  // namespace
}  // namespace verbatim
