// Stop strings, token by token, compared with looking at the whole output every time.
#include "engine/request/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "engine/base/prng.h"
#include "tests/support/random_cases.h"

namespace verbatim::tests {
namespace {

using Strings = std::vector<std::vector<TokenId>>;

bool output_ends_with(const std::vector<TokenId>& output, const std::vector<TokenId>& string, size_t num_tokens) {
    return num_tokens <= output.size() &&
           std::equal(string.begin(), string.begin() + static_cast<std::ptrdiff_t>(num_tokens),
                      output.end() - static_cast<std::ptrdiff_t>(num_tokens));
}

// What the matcher should say, from scratch.
size_t longest_match(const std::vector<TokenId>& output, const Strings& strings, bool whole) {
    size_t longest = 0;
    for (const auto& string : strings) {
        for (size_t n = whole ? string.size() : 1; n < string.size() + (whole ? 1 : 0); ++n) {
            if (output_ends_with(output, string, n)) longest = std::max(longest, n);
        }
    }
    return longest;
}

TEST(StopMatcher, SaysWhatTheWholeOutputSays) {
    const RandomCases cases = RandomCases::from_environment(300);
    for (uint64_t i = 0; i < cases.count; ++i) {
        Prng prng(cases.seed + i);
        const uint64_t num_tokens = 1 + prng.below(3);  // so few that strings overlap themselves and each other
        const auto draw = [&] { return static_cast<TokenId>(prng.below(num_tokens)); };
        Strings strings(prng.below(4));
        for (auto& string : strings) {
            string.resize(1 + prng.below(7));
            std::ranges::generate(string, draw);
        }
        StopMatcher matcher(strings);
        std::vector<TokenId> output;
        for (int taken = 0; taken < 60; ++taken) {
            output.push_back(draw());
            matcher.take(output.back());
            ASSERT_EQ(matcher.num_matched(), longest_match(output, strings, true)) << "case " << cases.seed + i;
            ASSERT_EQ(matcher.num_pending(), longest_match(output, strings, false)) << "case " << cases.seed + i;
        }
    }
}

TEST(StopMatcher, ABeginningThatBreaksLeavesTheNextShorterOne) {
    StopMatcher matcher(Strings{{1, 2, 1, 3}});
    for (const TokenId token : {1, 2, 1}) matcher.take(token);
    EXPECT_EQ(matcher.num_pending(), 3u);
    matcher.take(2);  // 1 2 is left of it
    EXPECT_EQ(matcher.num_pending(), 2u);
    matcher.take(1);
    matcher.take(3);
    EXPECT_EQ(matcher.num_matched(), 4u);
    EXPECT_EQ(matcher.num_pending(), 0u);
}

TEST(StopMatcherDeathTest, AnEmptyStringIsNone) { EXPECT_DEATH(StopMatcher(Strings{{1}, {}}), "stop string 1"); }

}  // namespace
}  // namespace verbatim::tests
