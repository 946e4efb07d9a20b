// engine/drafting/drafter.h: who guesses the next tokens of a running request, so that a window of them is computed at
// once. Whatever is guessed, the results are the same: a guess decides how many tokens a step gives, never which.
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
    SamplingParams sampling;          // with its seed: a guess may be drawn as the token will be
    int32_t max_drafts = 0;           // of use; at least 1
    std::vector<TokenId> drafts;      // filled in: at most max_drafts tokens that may follow, in order
};

class Drafter {
public:
    virtual ~Drafter() = default;
    // For all requests of a step at once. Tokens must lie in the vocabulary.
    virtual void draft(std::span<DraftJob> jobs) = 0;
    // Nothing more will be asked about the request.
    virtual void ended(RequestId request) = 0;
};

}  // namespace verbatim
