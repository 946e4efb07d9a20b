// kernels/bench/turns.h: the time to first token of a cached turn: the cost of attaching, in addition to computing the
// suffix.
//
// A turn attaches to a head of `length` tokens (full blocks by reference, the tail by one copy, the state by its row)
// and computes a suffix up to its first token, all in one step. In turn with it, another slot at the same position with
// private blocks and state computes the same suffix. Both sample the same token from the same bits.
#pragma once

#include "kernels/bench/rounds.h"
#include "kernels/bench/run.h"
#include "kernels/bench/sequences.h"

namespace verbatim::bench {

SequencePools turn_pools(const BenchConfig& config, int64_t head_length);

// REQUIRES: head_length > 1.
BenchRow bench_turn(const BenchConfig& config, const BenchSubject& subject, int64_t head_length);

}  // namespace verbatim::bench
