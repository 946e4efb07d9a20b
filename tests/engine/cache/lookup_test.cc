// Why tokens were not reused, by what the ledger and a name know: every token once, each for one reason.
#include "engine/cache/lookup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/prng.h"
#include "tests/support/random_cases.h"

namespace verbatim {
namespace {

using ::testing::ElementsAre;
using Range = NotReusedRange;

struct Known {
    int64_t num_tokens = 0;
    int64_t num_committed = 0;
    std::optional<int64_t> seam;
    bool use_cache = true;
    std::optional<int64_t> first_scored = {};
    int64_t num_unrestored = 0;
};

std::vector<Range> explain_known(const Known& known, int64_t attached, Range missed = {}) {
    TokenStore store(1000);
    const ConversationKey key{{}, "a"};
    const TokenSeq tokens = store.derive(0, 0, known.num_tokens);
    return explain({.key = key,
                    .tokens = tokens,
                    .num_committed = known.num_committed,
                    .seam = known.seam,
                    .use_cache = known.use_cache,
                    .first_scored = known.first_scored,
                    .num_unrestored = known.num_unrestored},
                   attached, missed);
}

TEST(Explain, ANewConversationIsNewAndWhatIsAttachedMakesTheRestNewTokens) {
    EXPECT_THAT(explain_known({.num_tokens = 5}, 0), ElementsAre(Range{5, NotReused::kNewConversation}));
    EXPECT_THAT(explain_known({.num_tokens = 5}, 2), ElementsAre(Range{5, NotReused::kNewTokens}));
}

TEST(Explain, TheUsualTurnComputesTheSeamAndWhatIsNew) {
    EXPECT_THAT(explain_known({.num_tokens = 10, .num_committed = 7, .seam = 6}, 6),
                ElementsAre(Range{7, NotReused::kSeam}, Range{10, NotReused::kNewTokens}));
}

TEST(Explain, CommittedTokensBelowAndBehindTheSeamLieBetweenHeads) {
    EXPECT_THAT(explain_known({.num_tokens = 10, .num_committed = 9, .seam = 6}, 2),
                ElementsAre(Range{6, NotReused::kBetweenHeads}, Range{7, NotReused::kSeam},
                            Range{9, NotReused::kBetweenHeads}, Range{10, NotReused::kNewTokens}));
}

TEST(Explain, AMissedHeadIsTheReasonUpToItsEnd) {
    EXPECT_THAT(explain_known({.num_tokens = 10, .num_committed = 9, .seam = 8}, 2, {6, NotReused::kEvicted}),
                ElementsAre(Range{6, NotReused::kEvicted}, Range{8, NotReused::kBetweenHeads},
                            Range{9, NotReused::kSeam}, Range{10, NotReused::kNewTokens}));
    EXPECT_THAT(explain_known({.num_tokens = 10, .num_committed = 9, .seam = 8}, 8, {6, NotReused::kEvicted}),
                ElementsAre(Range{9, NotReused::kSeam}, Range{10, NotReused::kNewTokens}))
        << "it is shorter than what is attached";
}

TEST(Explain, OfACommittedPromptTheLastTokenIsComputed) {
    EXPECT_THAT(explain_known({.num_tokens = 10, .num_committed = 10}, 9),
                ElementsAre(Range{10, NotReused::kLastToken}));
    EXPECT_THAT(explain_known({.num_tokens = 10, .num_committed = 30, .seam = 29}, 4),
                ElementsAre(Range{9, NotReused::kBetweenHeads}, Range{10, NotReused::kLastToken}));
}

TEST(Explain, ASeamAtTheLastTokenIsNoReason) {
    EXPECT_THAT(explain_known({.num_tokens = 10, .num_committed = 10, .seam = 9}, 4),
                ElementsAre(Range{9, NotReused::kBetweenHeads}, Range{10, NotReused::kLastToken}));
}

TEST(Explain, ARequestWithoutReuseHasOneReason) {
    EXPECT_THAT(explain_known({.num_tokens = 10, .num_committed = 9, .seam = 8, .use_cache = false}, 0),
                ElementsAre(Range{10, NotReused::kCacheOff}));
}

TEST(Explain, WhatIsScoredIsComputedWhateverIsKept) {
    EXPECT_THAT(explain_known({.num_tokens = 10, .num_committed = 9, .seam = 8, .first_scored = 5}, 3),
                ElementsAre(Range{5, NotReused::kBetweenHeads}, Range{10, NotReused::kScored}));
    EXPECT_THAT(explain_known({.num_tokens = 10, .num_committed = 9, .first_scored = 0}, 0, {6, NotReused::kEvicted}),
                ElementsAre(Range{10, NotReused::kScored}));
    EXPECT_THAT(explain_known({.num_tokens = 10, .num_committed = 10, .first_scored = 9}, 9),
                ElementsAre(Range{10, NotReused::kScored}));
    EXPECT_THAT(explain_known({.num_tokens = 10, .use_cache = false, .first_scored = 2}, 0),
                ElementsAre(Range{10, NotReused::kCacheOff}));
}

TEST(Explain, WhatAHeadOutsideOfMemoryHasIsSlowToRestore) {
    Known known{.num_tokens = 10, .num_committed = 9, .seam = 8, .num_unrestored = 6};
    EXPECT_THAT(explain_known(known, 2, {4, NotReused::kEvicted}),
                ElementsAre(Range{6, NotReused::kSlowToRestore}, Range{8, NotReused::kBetweenHeads},
                            Range{9, NotReused::kSeam}, Range{10, NotReused::kNewTokens}));
    EXPECT_THAT(explain_known(known, 7), ElementsAre(Range{8, NotReused::kBetweenHeads}, Range{9, NotReused::kSeam},
                                                     Range{10, NotReused::kNewTokens}));
    known.num_unrestored = 100;
    EXPECT_THAT(explain_known(known, 2),
                ElementsAre(Range{9, NotReused::kSlowToRestore}, Range{10, NotReused::kNewTokens}))
        << "one token is computed in any case";
}

TEST(Explain, EveryTokenBehindTheAttachedOnesHasOneReason) {
    const tests::RandomCases cases = tests::RandomCases::from_environment(500);
    for (uint64_t seed = cases.seed; seed < cases.seed + cases.count; ++seed) {
        SCOPED_TRACE(seed);
        Prng prng(seed);
        Known known{.num_tokens = 1 + static_cast<int64_t>(prng.below(12))};
        known.num_committed = static_cast<int64_t>(prng.below(15));
        if (known.num_committed > 0 && prng.below(2) == 0) {
            known.seam = static_cast<int64_t>(prng.below(static_cast<uint64_t>(known.num_committed)));
        }
        const auto attached = static_cast<int64_t>(prng.below(static_cast<uint64_t>(known.num_tokens)));
        const auto missed = static_cast<int64_t>(
            prng.below(static_cast<uint64_t>(std::min(known.num_tokens - 1, known.num_committed)) + 1));
        int64_t end = attached;
        for (const Range& range : explain_known(known, attached, {missed, NotReused::kLost})) {
            EXPECT_GT(range.end, end);
            EXPECT_TRUE(range.reason != NotReused::kLost || range.end == missed);
            EXPECT_TRUE(range.reason != NotReused::kSeam || (range.end - end == 1 && end == *known.seam));
            EXPECT_TRUE(range.reason != NotReused::kNewTokens || end >= known.num_committed);
            end = range.end;
        }
        EXPECT_EQ(end, known.num_tokens);
    }
}

TEST(ExplainDeathTest, ARequestComputesOneTokenAtLeast) {
    EXPECT_DEATH((void)explain_known({.num_tokens = 10}, 10), "10 of 10 tokens are attached");
}

// What the history of prefixes knows of tokens that look new.
TEST(ExplainKnown, WhatLooksNewHasTheFirstReasonThatTheCacheKnows) {
    const LookupResult found{.length = 2,
                             .not_reused = {{4, NotReused::kNoRoomToCopy}, {10, NotReused::kNewConversation}}};
    const auto explained = [&](int64_t gone, int64_t common, int64_t known) {
        return explain_known(
            found, 9,
            {{gone, NotReused::kEvicted}, {common, NotReused::kBetweenHeads}, {known, NotReused::kNotRetained}});
    };
    const Range no_room{4, NotReused::kNoRoomToCopy};
    const Range rest{10, NotReused::kNewConversation};
    EXPECT_THAT(explained(0, 0, 0), ElementsAre(no_room, rest));
    EXPECT_THAT(explained(6, 0, 0), ElementsAre(no_room, Range{6, NotReused::kEvicted}, rest));
    EXPECT_THAT(explained(6, 5, 8),
                ElementsAre(no_room, Range{6, NotReused::kEvicted}, Range{8, NotReused::kNotRetained}, rest));
    EXPECT_THAT(explained(3, 7, 8),
                ElementsAre(no_room, Range{7, NotReused::kBetweenHeads}, Range{8, NotReused::kNotRetained}, rest));
    EXPECT_THAT(explained(0, 0, 50), ElementsAre(no_room, Range{9, NotReused::kNotRetained}, rest))
        << "the last token is computed whatever is known";
}

TEST(ExplainKnown, NeighboursOfOneReasonAreOneRange) {
    const LookupResult found{.not_reused = {{8, NotReused::kBetweenHeads}, {10, NotReused::kNewTokens}}};
    EXPECT_THAT(explain_known(found, 9, {{5, NotReused::kBetweenHeads}}),
                ElementsAre(Range{8, NotReused::kBetweenHeads}, Range{10, NotReused::kNewTokens}));
}

TEST(ExplainKnown, OtherReasonsStay) {
    const LookupResult found{.not_reused = {{3, NotReused::kBetweenHeads},
                                            {4, NotReused::kSeam},
                                            {6, NotReused::kOtherNumerics},
                                            {8, NotReused::kNewTokens}}};
    EXPECT_THAT(
        explain_known(found, 7, {{7, NotReused::kEvicted}}),
        ElementsAre(Range{3, NotReused::kEvicted}, Range{4, NotReused::kSeam}, Range{6, NotReused::kOtherNumerics},
                    Range{7, NotReused::kEvicted}, Range{8, NotReused::kNewTokens}));
}

}  // namespace
}  // namespace verbatim
