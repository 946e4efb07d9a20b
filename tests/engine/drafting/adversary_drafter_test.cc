#include "engine/drafting/adversary_drafter.h"

#include <gtest/gtest.h>

#include <optional>
#include <span>
#include <vector>

namespace verbatim::tests {
namespace {

constexpr int32_t kAdversaryVocabulary = 50;

std::vector<TokenId> drafts_of(AdversaryDrafter& drafter, int32_t max_drafts) {
    DraftJob job{.max_drafts = max_drafts};
    drafter.draft(std::span(&job, 1));
    return job.drafts;
}

// The right tokens are 1, 2, 3 ...; beyond `num_known` of them the drafter knows none.
AdversaryDrafter adversary(std::optional<int32_t> mismatch_ppm, int64_t num_known = 49, uint64_t seed = 7) {
    const auto right = [num_known](const DraftJob&, int64_t ahead) {
        return ahead < num_known ? std::optional(static_cast<TokenId>(ahead + 1)) : std::nullopt;
    };
    return {right, kAdversaryVocabulary, seed, mismatch_ppm};
}

TEST(AdversaryDrafter, WithoutMismatchesAllDraftsAreRight) {
    AdversaryDrafter drafter = adversary(0);
    EXPECT_EQ(drafts_of(drafter, 3), (std::vector<TokenId>{1, 2, 3}));
}

TEST(AdversaryDrafter, WithMismatchesOnlyEveryDraftIsTheNextTokenOfTheVocabulary) {
    AdversaryDrafter drafter = adversary(1'000'000);
    EXPECT_EQ(drafts_of(drafter, 3), (std::vector<TokenId>{2, 3, 4}));
    EXPECT_EQ(drafts_of(drafter, 49).back(), 0);  // after the last one comes the first
}

TEST(AdversaryDrafter, ARateOfMismatchesIsKept) {
    AdversaryDrafter drafter = adversary(250'000);
    int64_t num_wrong = 0;
    for (int i = 0; i < 100; ++i) {
        const std::vector<TokenId> drafts = drafts_of(drafter, 40);
        for (size_t j = 0; j < drafts.size(); ++j) num_wrong += drafts[j] == static_cast<TokenId>(j + 1) ? 0 : 1;
    }
    EXPECT_GT(num_wrong, 900);  // of 4000
    EXPECT_LT(num_wrong, 1100);
}

TEST(AdversaryDrafter, AtARateItStopsAtTheEndOfTheKnownTokens) {
    AdversaryDrafter drafter = adversary(0, 2);
    EXPECT_EQ(drafts_of(drafter, 5), (std::vector<TokenId>{1, 2}));
}

TEST(AdversaryDrafter, WithoutARateItDraftsAnyNumberOfRightAndWrongTokens) {
    AdversaryDrafter drafter = adversary(std::nullopt);
    int none = 0;
    int full = 0;
    int right = 0;
    int half = 0;  // right first, then not
    int nonsense = 0;
    for (int i = 0; i < 400; ++i) {
        const std::vector<TokenId> drafts = drafts_of(drafter, 6);
        ASSERT_LE(drafts.size(), 6u);
        size_t num_right = 0;
        while (num_right < drafts.size() && drafts[num_right] == static_cast<TokenId>(num_right + 1)) ++num_right;
        none += drafts.empty() ? 1 : 0;
        full += drafts.size() == 6 ? 1 : 0;
        right += num_right == 6 ? 1 : 0;
        half += num_right > 1 && num_right < drafts.size() ? 1 : 0;
        nonsense += num_right == 0 && drafts.size() > 1 ? 1 : 0;
    }
    for (const int count : {none, full, right, half, nonsense}) EXPECT_GE(count, 10);
}

// The first number that this seed draws below a million is 0.
TEST(AdversaryDrafter, ARateOfNoneIsNone) {
    AdversaryDrafter drafter = adversary(0, 49, 1127518);
    EXPECT_EQ(drafts_of(drafter, 1), (std::vector<TokenId>{1}));
    AdversaryDrafter rare = adversary(1, 49, 1127518);
    EXPECT_EQ(drafts_of(rare, 1), (std::vector<TokenId>{2}));
}

// A failure is found again by its seed.
TEST(AdversaryDrafter, ASeedDraftsTheSameEverywhere) {
    AdversaryDrafter drafter = adversary(std::nullopt);
    std::vector<std::vector<TokenId>> drafts;
    for (int i = 0; i < 12; ++i) drafts.push_back(drafts_of(drafter, 3));
    EXPECT_EQ(drafts,
              (std::vector<std::vector<TokenId>>{
                  {1}, {1, 12, 23}, {1}, {1}, {43, 43, 27}, {1, 2, 3}, {33, 5}, {1}, {1, 2, 3}, {20}, {1, 2, 3}, {1}}));
}

}  // namespace
}  // namespace verbatim::tests
