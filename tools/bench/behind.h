// tools/bench/behind.h: what tokens cost behind a long context: a chunk of a prefill, and decoding, at that position.
//
// The context is not computed token by token: the KV of a short prompt is repeated until it is there, so that 128 K
// tokens take seconds. Every page lies in memory of its own, and every repetition computes other tokens behind it.
#pragma once

#include <span>
#include <vector>

#include "tools/bench/rounds.h"
#include "tools/bench/run.h"
#include "tools/bench/sequences.h"

namespace verbatim::tools {

SequencePools behind_pools(const BenchConfig& config, int64_t context);

// "prefill_behind" and "decode_behind". What an exact row computed last is computed once more in chunks of another size
// behind the same context: its logits have the same bits. The subjects take turns.
std::vector<BenchRow> bench_behind(const BenchConfig& config, std::span<const BenchSubject> subjects,
                                   MachineProbe& probe, int64_t context);

}  // namespace verbatim::tools
