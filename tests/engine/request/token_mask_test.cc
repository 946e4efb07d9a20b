#include "engine/request/token_mask.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

namespace verbatim::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::byte> bits_of(const std::vector<bool>& set) {
    std::vector<std::byte> bits((set.size() + 7) / 8);
    for (size_t i = 0; i < set.size(); ++i) {
        if (set[i]) bits[i / 8] |= std::byte{1} << (i % 8);
    }
    return bits;
}

TEST(TokenMask, RunsBeginWithForbiddenTokensAndEndWithAllowedOnes) {
    const auto runs = [](const std::vector<bool>& set) {
        return mask_of_bits(bits_of(set), static_cast<int32_t>(set.size())).runs;
    };
    EXPECT_THAT(runs({true, true, false, true}), ElementsAre(0, 2, 1, 1));
    EXPECT_THAT(runs({false, true, false}), ElementsAre(1, 1));
    EXPECT_THAT(runs({false, false}), IsEmpty());
    EXPECT_THAT(runs(std::vector<bool>(21, true)), ElementsAre(0, 21));
}

TEST(TokenMask, BitsBeyondTheVocabularyCountForNothing) {
    EXPECT_THAT(mask_of_bits(std::vector<std::byte>(2, std::byte{0xff}), 11).runs, ElementsAre(0, 11));
    EXPECT_THAT(mask_of_bits(std::vector<std::byte>{std::byte{0}, std::byte{0xf8}}, 11).runs, IsEmpty());
}

TEST(TokenMask, OfEqualSetsThereIsOneValidMask) {
    EXPECT_TRUE(is_valid_mask(std::vector<int32_t>{0, 3}, 3));
    EXPECT_TRUE(is_valid_mask(std::vector<int32_t>{2, 1, 4, 3}, 10));
    EXPECT_FALSE(is_valid_mask(std::vector<int32_t>{}, 10));            // allows none
    EXPECT_FALSE(is_valid_mask(std::vector<int32_t>{2, 1, 4}, 10));     // a forbidden run at the end
    EXPECT_FALSE(is_valid_mask(std::vector<int32_t>{2, 0}, 10));        // an empty run
    EXPECT_FALSE(is_valid_mask(std::vector<int32_t>{2, 1, 0, 1}, 10));  // two that are one
    EXPECT_FALSE(is_valid_mask(std::vector<int32_t>{-1, 2}, 10));
    EXPECT_FALSE(is_valid_mask(std::vector<int32_t>{8, 3}, 10));
    EXPECT_FALSE(is_valid_mask(std::vector<int32_t>{2147483647, 2147483647}, 10));
}

RC_GTEST_PROP(TokenMask, AllowsWhatTheBitsAllow, (const std::vector<bool>& set)) {
    const auto vocab_size = static_cast<int32_t>(set.size());
    const TokenMask mask = mask_of_bits(bits_of(set), vocab_size);
    const bool any = std::ranges::count(set, true) > 0;
    RC_ASSERT(is_valid_mask(mask.runs, vocab_size) == any);
    for (TokenId token = 0; token < vocab_size; ++token)
        RC_ASSERT(allows(mask.runs, token) == set[static_cast<size_t>(token)]);
    RC_ASSERT(!allows(mask.runs, vocab_size));
    std::vector<TokenId> allowed;
    for (TokenId token = 0; token < vocab_size; ++token) {
        if (set[static_cast<size_t>(token)]) allowed.push_back(token);
    }
    RC_ASSERT(!allows_beyond(mask.runs, allowed));
    if (any) RC_ASSERT(allows_beyond(mask.runs, std::span(allowed).first(allowed.size() - 1)));
    if (any) RC_ASSERT(allows_beyond(mask.runs, std::span(allowed).subspan(1)));
}

}  // namespace
}  // namespace verbatim::tests
