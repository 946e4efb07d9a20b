// kernels/bench/long_context.h: the cost of tokens after a long context: a prefill chunk, and decoding, at that
// position.
//
// The context is not computed token by token: the KV of a short prompt is repeated up to its length, so 128 K tokens
// take seconds. Every page has separate memory, and every repetition computes different tokens after it.
#pragma once

#include <span>
#include <vector>

#include "kernels/bench/rounds.h"
#include "kernels/bench/run.h"
#include "kernels/bench/sequences.h"

namespace verbatim::bench {

SequencePools behind_pools(const BenchConfig& config, int64_t context);

// "prefill_behind" and "decode_behind". The last result of an exact row is checked by computing it again in chunks of
// another size after the same context: its logits have the same bits. The subjects take turns.
std::vector<BenchRow> bench_long_context(const BenchConfig& config, std::span<const BenchSubject> subjects,
                                         MachineProbe& probe, int64_t context);

}  // namespace verbatim::bench
