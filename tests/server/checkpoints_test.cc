// Where states are kept for histories that turn off.
#include "server/checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace verbatim::tests {
namespace {

using server::kMaxCheckpoints;
using server::message_ends;
using server::spread_checkpoints;
using testing::ElementsAre;
using testing::IsEmpty;

// Special tokens are below 10.
std::vector<int64_t> ends_of(const std::vector<TokenId>& ids) {
    return message_ends(ids, [](TokenId id) { return id < 10; });
}

TEST(Checkpoints, LieBehindTheSpecialTokenThatEndsAMessage) {
    EXPECT_THAT(ends_of({}), IsEmpty());
    EXPECT_THAT(ends_of({10, 11, 12, 13, 14}), IsEmpty()) << "nothing says that it has ended";
    // begin, role, end of role, text, end, new line, begin: ends behind the text's end, not behind a role.
    EXPECT_THAT(ends_of({1, 20, 2, 30, 31, 32, 33, 3, 40, 1, 20, 2, 50, 51, 52, 53, 54, 3, 40, 1, 20, 2}),
                ElementsAre(8, 18));
    EXPECT_THAT(ends_of({1, 20, 2, 30, 3, 40, 1, 20, 2, 50, 51, 52, 53, 3}), ElementsAre(14)) << "a word is no message";
}

TEST(Checkpoints, TheFirstTheNewestAndSomeBetweenAreChosen) {
    std::vector<int64_t> ends;
    EXPECT_THAT(spread_checkpoints(ends, 0, kMaxCheckpoints), IsEmpty());
    for (int64_t end = 100; end <= 100'000; end += 100) {
        ends.push_back(end);
        const int64_t num_tokens = end + 20;
        const std::vector<int64_t> chosen = spread_checkpoints(ends, num_tokens, kMaxCheckpoints);
        ASSERT_LE(chosen.size(), kMaxCheckpoints);
        ASSERT_TRUE(std::ranges::is_sorted(chosen) && std::ranges::adjacent_find(chosen) == chosen.end());
        ASSERT_EQ(chosen.front(), 100);
        ASSERT_EQ(chosen.back(), end);
        for (size_t i = chosen.size() == kMaxCheckpoints ? 2 : 1; i < chosen.size(); ++i) {
            const int64_t below = num_tokens - chosen[i - 1];
            ASSERT_TRUE(below <= 2 * (num_tokens - chosen[i]) || chosen[i] - chosen[i - 1] == 100)
                << chosen[i - 1] << " below " << chosen[i] << " of " << num_tokens;
        }
        for (size_t i = 0; i < std::min<size_t>(4, ends.size()); ++i)
            ASSERT_TRUE(std::ranges::count(chosen, ends[ends.size() - 1 - i]));
    }
    // 4 of 100 tokens each, then twice as far each time: that many reach over this many tokens.
    EXPECT_EQ(spread_checkpoints(ends, 100'020, kMaxCheckpoints).size(), kMaxCheckpoints);
    EXPECT_EQ(spread_checkpoints(ends, 100'020, kMaxCheckpoints)[1], 61'600);
}

}  // namespace
}  // namespace verbatim::tests
