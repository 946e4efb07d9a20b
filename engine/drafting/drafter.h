// engine/drafting/drafter.h: proposes the next tokens of running requests, so that a step computes a window of them.
// Drafts decide how many tokens a step yields, never which.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/ids.h"
#include "engine/request/sampling.h"
#include "engine/tokens/token_seq.h"

namespace verbatim {

// One request that could use drafts in the step to come.
struct DraftJob {
    RequestId request{};
    const TokenSeq* prompt = nullptr;
    std::span<const TokenId> output;  // so far
    SamplingParams sampling;          // with its seed: a draft may be sampled as the token will be
    int32_t max_drafts = 0;           // that the step can use; at least 1
    std::vector<TokenId> drafts;      // filled in: at most max_drafts tokens that may follow, in order
};

class Drafter {
public:
    virtual ~Drafter() = default;
    // Before every step, whether it drafts or not.
    virtual void step_begins() {}
    // For all requests of a step at once. Tokens must lie in the vocabulary. May leave the jobs in another order.
    virtual void draft(std::span<DraftJob> jobs) = 0;
    // The request gets no more drafts.
    virtual void ended(RequestId request) = 0;
};

}  // namespace verbatim
