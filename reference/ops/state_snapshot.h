// reference/ops/state_snapshot.h: copies of a recurrent state that an op writes when it passes a position.
#pragma once

#include <cstdint>
#include <span>

#include "reference/ops/rows.h"

namespace verbatim::reference {

// The state after the call's first `num_tokens` tokens, in the layout of the op's own state.
struct StateSnapshot {
    int64_t num_tokens = 0;  // 1 ... the call's number of tokens; strictly ascending within a call
    float* out = nullptr;
};

inline void check(std::span<const StateSnapshot> snapshots, int64_t num_tokens) {
    int64_t previous = 0;
    for (const StateSnapshot& snapshot : snapshots) {
        CHECK(snapshot.num_tokens > previous && snapshot.num_tokens <= num_tokens,
              "snapshot after {} of {} tokens, the one before it after {}", snapshot.num_tokens, num_tokens, previous);
        check_pointer(snapshot.out, 1);
        previous = snapshot.num_tokens;
    }
}

}  // namespace verbatim::reference
