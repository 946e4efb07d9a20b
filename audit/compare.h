// audit/compare.h: owns the comparison of two answers that must be equal, token by token.
//
// Up to the first difference both answers stand on the same tokens, so their log-probabilities may be compared: what
// they differ by is the noise of the server's arithmetic. Noise is measured as the change of the difference of two
// tokens' log-probabilities (of logits, that is), in nats:
//
//   change = | (left(chosen) - left(other)) - (right(chosen) - right(other)) |
//
// At the first difference one answer has token a and the other has token b. `flip` is the same change of a and b: the
// noise that it takes to turn one answer into the other one.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "audit/runner.h"
#include "audit/server_info.h"

namespace verbatim::audit {

struct Comparison {
    std::string problem;    // why the two cannot be compared; empty: they were
    bool is_equal = false;  // texts, ends, and every log-probability that both have
    bool same_text = false;
    bool has_scores = false;  // both have log-probabilities
    size_t position = 0;      // tokens, or bytes without them, before the first difference
    std::string left_text;    // what stands there: the token, or the text
    std::string right_text;
    std::vector<double> changes;  // before the first difference
    std::optional<double> flip;   // in nats
    bool is_least = false;        // flip is a lower bound: the other token is not in the list of the likeliest
    std::string impossible;       // what no noise explains
    double distance = 0;          // sampled: sum of the total variation distances, the differing position included
};

// REQUIRES: the pair's answers are there.
[[nodiscard]] Comparison compare(const Trial& trial, const Pair& pair, const ServerInfo& info);

}  // namespace verbatim::audit
