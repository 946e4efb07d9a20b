// simulator/head_bound.h: owns an upper bound on the tokens that conversations can reuse from heads in a memory of a
// given size, for any eviction policy.
//
// A family is a set of conversations related by forks or by taking from one another. A row can reuse its common prefix
// with an earlier row of its family, except for at least one token: its gain. For that a head must have been in memory
// since the family's last row: a state row, and the KV of the reused tokens, for that interval. Intervals of one family
// do not overlap, and two concurrent reuses need two heads: a head that served both would make the earlier row the
// later one's last row.
//
// The question is which intervals to keep. The bound is a relaxation: the intervals' state rows, and separately their
// KV, must fit the memory summed over the whole time, not at every moment; and a fraction of an interval may be kept
// for that fraction of its gain (fractional knapsack). No eviction policy, even with knowledge of the future, keeps
// more.
#pragma once

#include <cstdint>

#include "engine/base/result.h"
#include "traces/trace.h"

namespace verbatim {

struct HeadBound {
    int64_t tokens = 0;
    double token_rate = 0;  // share of all prompt tokens
};

// The memory of heads; 0: the model has no such layers, and its heads need none.
struct HeadMemory {
    int64_t num_state_rows = 0;
    int64_t kv_tokens = 0;
};

// The bound for traces that plan at most 2^34 tokens, prompts and answers together. Error: a token outside the
// vocabulary.
Result<HeadBound> head_bound(const traces::Trace& trace, int32_t vocab_size, const HeadMemory& memory);

}  // namespace verbatim
