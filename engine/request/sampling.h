// engine/request/sampling.h: how a request's tokens are drawn. The engine carries these values and never computes with
// them; executors do, by NUMERICS N7 (reference/ops/sampling.h).
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/ids.h"

namespace verbatim {

// Added to a token's logit before everything else.
struct LogitBias {
    TokenId token = 0;
    float bias = 0;
    friend bool operator==(const LogitBias&, const LogitBias&) = default;
};

struct SamplingParams {
    float temperature = 0;         // 0: greedy, the lowest id among equals
    int32_t top_k = 0;             // 0: off
    float top_p = 1;               // 1: off
    float repetition_penalty = 1;  // 1: off; divides positive logits of seen tokens, multiplies negative ones
    float presence_penalty = 0;    // subtracted once from tokens that were generated before
    float frequency_penalty = 0;   // subtracted per occurrence
    float min_p = 0;               // 0: off; keeps tokens at least min_p times as likely as the likeliest one
    int32_t min_tokens = 0;        // until so many are generated, none of `end_tokens` is drawn
    std::vector<TokenId> end_tokens;
    std::vector<LogitBias> logit_bias;  // ascending by token, each token once
    uint64_t seed = 0;                  // key of the Philox generator; the engine fills it in when a request names none
    friend bool operator==(const SamplingParams&, const SamplingParams&) = default;
};

}  // namespace verbatim
