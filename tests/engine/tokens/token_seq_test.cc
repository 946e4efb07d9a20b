// Token sequences: shared lists of runs never show, sources live as long as they are shared.
#include "engine/tokens/token_seq.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
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

TEST(TokenSeq, ASequenceGoesOnWithWhatLiesNextInItsListOnly) {
    TokenStore store(100);
    TokenSeq base = store.store(Tokens{1, 2, 3});
    base.append(store.derive(7, 10, 6));
    for (const int64_t begin : {12, 15, 18}) {  // what lies there, and other parts of the same source
        TokenSeq cut = base.slice(0, 5);
        cut.append(store.derive(7, begin, 2));
        Tokens wanted = base.slice(0, 5).to_vector();
        for (const TokenId id : store.derive(7, begin, 2).to_vector()) wanted.push_back(id);
        EXPECT_EQ(cut.to_vector(), wanted) << begin;
        EXPECT_EQ(cut.num_runs(), begin == 12 ? 2u : 3u) << begin;
    }
}

TEST(TokenSeq, NeighboursInOneSourceAreOneRun) {
    TokenStore store(100);
    TokenSeq seq = store.derive(5, 0, 4);
    seq.append(store.derive(5, 4, 4));
    EXPECT_EQ(seq.num_runs(), 1u);
    EXPECT_EQ(seq, store.derive(5, 0, 8));
}

TEST(TokenSeq, APartIsReadFromTheMiddleOfARunToTheMiddleOfAnother) {
    TokenStore store(100);
    TokenSeq seq = store.store(Tokens{1, 2, 3, 4});
    seq.append(store.store(Tokens{5, 6, 7}));
    Tokens part(4);
    seq.read(2, part);
    EXPECT_THAT(part, ElementsAre(3, 4, 5, 6));
    seq.read(7, {});
    TokenSeq().read(0, {});
}

// Recorded runs and traces count on them.
TEST(TokenStore, DerivedTokensAreThese) {
    EXPECT_THAT(TokenStore(1000).derive(0, 0, 6).to_vector(), ElementsAre(479, 749, 372, 438, 954, 202));
    EXPECT_THAT(TokenStore(50'000).derive(5, 1000, 6).to_vector(),
                ElementsAre(29094, 27151, 28640, 5920, 25397, 47633));
    EXPECT_THAT(TokenStore(152'000).derive(INT64_MAX, int64_t{1} << 40, 6).to_vector(),
                ElementsAre(20505, 108492, 108241, 79915, 119198, 71428));
}

TEST(TokenStoreDeathTest, TokensOutsideOfTheVocabularyAreNotStored) {
    TokenStore store(100);
    for (const TokenId outside : {-1, 100}) {
        EXPECT_DEATH((void)store.store(Tokens{outside, 1}), "1 of 2 tokens are none of 100");
        EXPECT_DEATH((void)store.store(Tokens{outside, outside, 1}), "2 of 3 tokens are none of 100");
    }
}

TEST(TokenSeqDeathTest, NothingIsReadBehindTheEnd) {
    TokenStore store(100);
    const TokenSeq seq = store.store(Tokens{1, 2, 3});
    EXPECT_DEATH((void)seq.at(3), "tokens .3, 4. of 3");
}

TEST(TokenSeq, ADigestIsOfTheIdsHoweverTheyAreCut) {
    TokenStore store(50'000);
    TokenSeq seq = store.derive(1, 0, 1500);
    seq.append(store.derive(2, 7, 1600));
    const Tokens ids = seq.to_vector();
    Digester of_sequence;
    seq.add_to(of_sequence);
    Digester of_ids;
    of_ids.add(int64_t{3100});
    of_ids.bytes(ids.data(), ids.size() * sizeof(TokenId));
    EXPECT_EQ(of_sequence.digest().hex(), of_ids.digest().hex());
}

TEST(TokenSeq, ADigestOfDerivedTokensIsOfTheirPlace) {
    TokenStore store(100);
    const auto digest = [&](uint64_t space, int64_t begin, int64_t length) {
        return store.derive(space, begin, length).prefix_digest(0, length, 9);
    };
    EXPECT_EQ(store.derive(1, 0, 9).prefix_digest(2, 6, 9), digest(1, 2, 4));
    EXPECT_NE(digest(1, 0, 4), digest(2, 0, 4));
    EXPECT_NE(digest(1, 0, 4), digest(1, 1, 4));
    EXPECT_NE(digest(1, 0, 4), digest(1, 0, 5));
    EXPECT_EQ(digest(1, 0, 0), 9u) << "of nothing";
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

// T3, T4
TEST(TokenSeq, WhatSharesAListOfRunsKeepsAllOfIt) {
    TokenStore store(100);
    TokenSeq whole = store.store(Tokens{1, 2, 3});
    whole.append(store.store(Tokens{4}));
    const TokenSeq first = whole.slice(0, 3);
    const TokenSeq middle = whole.slice(1, 3);
    whole = {};
    EXPECT_EQ(store.num_stored_sources(), 2u);
    EXPECT_THAT(first.to_vector(), ElementsAre(1, 2, 3));
    EXPECT_THAT(middle.to_vector(), ElementsAre(2, 3));
}

TEST(TokenStore, TheNumberOfASourceThatIsGoneIsUsedAgain) {
    TokenStore store(100);
    const TokenSource gone = store.store(Tokens{1, 2}).run(0).source;
    const TokenSeq kept = store.store(Tokens{3});
    EXPECT_EQ(kept.run(0).source, gone);
    EXPECT_NE(store.store(Tokens{4}).run(0).source, gone);
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
