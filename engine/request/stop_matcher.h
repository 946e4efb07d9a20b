// engine/request/stop_matcher.h: knows how much of each stop string a request's output ends with, token by token.
//
// Of every string the longest beginning that the output ends with is kept, and where it breaks the next shorter one
// takes its place (Knuth, Morris and Pratt): a token costs a step per string on average, however long they are.
//   T1  num_matched() is the longest string that the output ends with, num_pending() the longest beginning of one
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/ids.h"

namespace verbatim {

class StopMatcher {
public:
    StopMatcher() = default;
    // REQUIRES: no string is empty.
    explicit StopMatcher(std::span<const std::vector<TokenId>> strings);

    void take(TokenId token);
    [[nodiscard]] size_t num_matched() const { return num_matched_; }  // tokens of a whole string; 0: of none
    [[nodiscard]] size_t num_pending() const { return num_pending_; }  // tokens that may yet become a string

private:
    struct Pattern {
        std::vector<TokenId> tokens;
        std::vector<uint32_t> borders;  // [n]: of its first n tokens, the longest proper beginning that they end with
        uint32_t length = 0;            // of its beginning that the output ends with
    };
    static void step(Pattern& pattern, TokenId token);

    std::vector<Pattern> patterns_;
    size_t num_matched_ = 0;
    size_t num_pending_ = 0;
};

}  // namespace verbatim
