// simulator/head_bound.h: the most that heads of conversations could reuse with so much memory, whatever is evicted.
//
// A row can go on from what it has in common with an earlier row, less one token at least. The head that it
// goes on from lay in memory since the last row of its family: conversations that come from each other by forks or by
// what they take. Heads that serve two rows at once are two: were one good for both, the earlier row would be the later
// one's last. So hits are intervals between neighbouring rows of a family, each worth what is common. At a time they
// need a state row each, and the KV of what they reuse. The bound gives them the sum over all times of what there is,
// of rows and of KV apart, and lets them be cut (the knapsack with fractions): at least what any policy reaches, also
// one that knows the future.
#pragma once

#include <cstdint>

#include "engine/base/result.h"
#include "traces/trace.h"

namespace verbatim {

struct HeadBound {
    int64_t tokens = 0;
    double token_rate = 0;  // of all prompt tokens
};

// What heads lie in; 0: the model has no such layers, and its heads need none.
struct HeadMemory {
    int64_t num_state_rows = 0;
    int64_t kv_tokens = 0;
};

// A bound of traces that plan at most 2^34 tokens, prompts and answers together. Error: a token outside the vocabulary.
Result<HeadBound> head_bound(const traces::Trace& trace, int32_t vocab_size, const HeadMemory& memory);

}  // namespace verbatim
