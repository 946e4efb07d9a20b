#include "engine/drafting/ngram_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

#include "tests/support/engine_scene.h"

namespace verbatim::tests {
namespace {

using ::testing::ElementsAre;

std::vector<TokenId> looked_up(const std::vector<TokenId>& prompt, const std::vector<TokenId>& output,
                               int32_t max_drafts) {
    TokenStore store(1000);
    const TokenSeq tokens = store.store(prompt);
    NgramDrafter drafter;
    DraftJob job{.request = RequestId{1}, .prompt = &tokens, .output = output, .max_drafts = max_drafts};
    drafter.draft({&job, 1});
    return job.drafts;
}

TEST(NgramDrafter, WhatFollowedTheNewestTokensIsDrafted) {
    EXPECT_THAT(looked_up({1, 2, 3, 4, 5, 1}, {2}, 3), ElementsAre(3, 4, 5));
    EXPECT_THAT(looked_up({1, 2, 3, 4, 5, 1}, {2}, 2), ElementsAre(3, 4));
    EXPECT_THAT(looked_up({1, 2, 3, 4, 5, 1}, {2}, 7), ElementsAre(3, 4, 5, 1, 2, 3, 4));
    EXPECT_THAT(looked_up({8, 8, 8}, {8}, 4), ElementsAre(8, 8, 8, 8));
    EXPECT_THAT(looked_up({1, 2, 3, 4, 5}, {9}, 3), ElementsAre());
    EXPECT_THAT(looked_up({1}, {2}, 3), ElementsAre());
}

TEST(NgramDrafter, TheLongestContextWinsAndAmongEqualsTheNewest) {
    EXPECT_THAT(looked_up({7, 1, 2, 3, 8, 1, 2, 4, 7, 1}, {2}, 1), ElementsAre(3));
    EXPECT_THAT(looked_up({7, 1, 2, 3, 8, 1, 2, 4, 9, 1}, {2}, 1), ElementsAre(4));
}

TEST(NgramDrafter, OneTokenIsItsOwnContinuation) {
    EXPECT_THAT(looked_up({8, 8}, {8}, 2), ElementsAre(8, 8));
    EXPECT_THAT(looked_up({8}, {8}, 2), ElementsAre());
    EXPECT_THAT(looked_up({8}, {}, 2), ElementsAre());
}

// Of contexts, one of 16 tokens and a longer one, behind which 900 and 901 follow.
TEST(NgramDrafter, ContextsAreComparedUpToTheirBound) {
    const std::vector<TokenId> context = iota_tokens(100, NgramDrafter::kMaxContext);
    const std::vector<TokenId> longer = std::vector<TokenId>{50} + context;
    const std::vector<TokenId> prompt = longer + std::vector<TokenId>{900, 51} + context + std::vector<TokenId>{901};
    EXPECT_THAT(looked_up(prompt, longer, 1), ElementsAre(901)) << "the newest of equals";
    const std::vector<TokenId> shorter(context.begin() + 1, context.end());
    const std::vector<TokenId> other = context + std::vector<TokenId>{900, 51} + shorter + std::vector<TokenId>{901};
    EXPECT_THAT(looked_up(other, context, 1), ElementsAre(900));
}

TEST(NgramDrafter, SoManyCandidatesAreComparedAndNoMore) {
    for (const int32_t num_newer : {NgramDrafter::kMaxCandidates - 1, NgramDrafter::kMaxCandidates}) {
        std::vector<TokenId> prompt{9, 1, 2, 77};
        for (int32_t i = 0; i < num_newer; ++i) prompt = prompt + std::vector<TokenId>{100 + i, 1, 2, 78};
        EXPECT_THAT(looked_up(prompt, {9, 1, 2}, 1), ElementsAre(num_newer < NgramDrafter::kMaxCandidates ? 77 : 78));
    }
}

TEST(NgramDrafter, TheIndexGrowsWithTheOutput) {
    TokenStore store(1000);
    const TokenSeq prompt = store.store(std::vector<TokenId>{1, 2});
    NgramDrafter drafter;
    const std::vector<TokenId> output{3, 4, 1, 2, 3};
    std::vector<std::vector<TokenId>> drafts;
    for (size_t n = 0; n <= output.size(); ++n) {
        DraftJob job{.request = RequestId{1}, .prompt = &prompt, .output = std::span(output).first(n), .max_drafts = 2};
        drafter.draft({&job, 1});
        drafts.push_back(job.drafts);
    }
    EXPECT_THAT(drafts, ElementsAre(ElementsAre(), ElementsAre(), ElementsAre(), ElementsAre(), ElementsAre(3, 4),
                                    ElementsAre(4, 1)));
}

}  // namespace
}  // namespace verbatim::tests
