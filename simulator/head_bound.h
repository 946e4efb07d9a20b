// simulator/head_bound.h: an upper bound on how many tokens conversations can reuse from heads in a memory of a given
// size, whatever the eviction policy.
//
// A family is a set of conversations that come from each other, by forks or by taking from one another. A row can reuse
// what it has in common with an earlier row of its family, but for one token at least: its gain. For that a head must
// have stayed in memory since the family's last row: a state row, and the KV of what is reused, for that interval.
// Neighbouring intervals of a family do not overlap, and two rows that reuse at one time need a head each: one that was
// good for both would make the earlier row the later one's last.
//
// So the question is which intervals to keep. The bound asks less than memory does: the intervals' state rows, and
// apart from them their KV, must fit into what there is summed over the whole time, not at every moment; and a fraction
// of an interval may be kept, for that fraction of its gain (the fractional knapsack). Whoever evicts, even knowing the
// future, keeps no more.
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
