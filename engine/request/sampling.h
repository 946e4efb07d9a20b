// engine/request/sampling.h: how a request's tokens are drawn. The engine carries these values and never computes with
// them; executors do, by NUMERICS N7 (reference/ops/sampling.h).
#pragma once

#include <cstdint>

#include "engine/base/digest.h"

namespace verbatim {

struct SamplingParams {
    float temperature = 0;         // 0: greedy, the lowest id among equals
    int32_t top_k = 0;             // 0: off
    float top_p = 1;               // 1: off
    float repetition_penalty = 1;  // 1: off; divides positive logits of seen tokens, multiplies negative ones
    float presence_penalty = 0;    // subtracted once from tokens that were generated before
    float frequency_penalty = 0;   // subtracted per occurrence
    uint64_t seed = 0;             // key of the Philox generator; the engine fills it in when a request names none
    friend bool operator==(const SamplingParams&, const SamplingParams&) = default;
};

void add_to(Digester& digester, const SamplingParams& params);

}  // namespace verbatim
