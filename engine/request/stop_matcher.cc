#include "engine/request/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"

namespace verbatim {

StopMatcher::StopMatcher(std::span<const std::vector<TokenId>> strings) {
    for (const std::vector<TokenId>& string : strings) {
        CHECK(!string.empty(), "stop string {} has no tokens", patterns_.size());
        Pattern& pattern = patterns_.emplace_back();
        pattern.tokens = string;
        pattern.borders.assign(string.size() + 1, 0);
        // The string as if it were the output, from the second token on.
        for (size_t n = 2; n <= string.size(); ++n) {
            step(pattern, string[n - 1]);
            pattern.borders[n] = pattern.length;
        }
        pattern.length = 0;
        CHECK_LT(pattern.borders.back(), string.size());
    }
}

void StopMatcher::step(Pattern& pattern, TokenId token) {
    uint32_t length = pattern.length;
    while (length > 0 && (length == pattern.tokens.size() || pattern.tokens[length] != token)) {
        CHECK(pattern.borders[length] < length, "a border of {} in {} tokens", pattern.borders[length], length);
        length = pattern.borders[length];
    }
    pattern.length = pattern.tokens[length] == token ? length + 1 : 0;
    CHECK_LE(pattern.length, pattern.tokens.size());
}

void StopMatcher::take(TokenId token) {
    num_matched_ = num_pending_ = 0;
    for (Pattern& pattern : patterns_) {
        step(pattern, token);
        const bool whole = pattern.length == pattern.tokens.size();
        if (whole) num_matched_ = std::max(num_matched_, pattern.tokens.size());
        num_pending_ = std::max<size_t>(num_pending_, whole ? pattern.borders[pattern.length] : pattern.length);
        CHECK(pattern.length <= pattern.tokens.size(), "{} tokens of {} match", pattern.length, pattern.tokens.size());
    }
}

}  // namespace verbatim
