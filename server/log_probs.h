// server/log_probs.h: owns the computation of log probabilities from a row of logits. For display: sampling does not
// use them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/ids.h"

namespace verbatim::server {

struct TokenLogProb {
    TokenId token = 0;
    double log_prob = 0;
    friend bool operator==(const TokenLogProb&, const TokenLogProb&) = default;
};

// For one sampled or given token, and for the most likely ones in its place: largest first, equal ones by id.
struct LogProbs {
    TokenLogProb drawn;
    std::vector<TokenLogProb> top;
    int64_t rank = 0;  // of the drawn token in that order, from 1; 0: nothing is known, nor asked for
    [[nodiscard]] bool is_known() const { return rank > 0; }
    friend bool operator==(const LogProbs&, const LogProbs&) = default;
};

// ln softmax(logits), in binary64, terms of the sum in order of ids. REQUIRES: finite logits, drawn < logits.size().
[[nodiscard]] LogProbs log_probs(std::span<const float> logits, TokenId drawn, int32_t num_top);

}  // namespace verbatim::server
