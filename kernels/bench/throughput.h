// kernels/bench/throughput.h: prefill and decode, row by row.
#pragma once

#include <span>
#include <vector>

#include "kernels/bench/rounds.h"
#include "kernels/bench/run.h"
#include "kernels/bench/sequences.h"

namespace verbatim::bench {

// Maximum tokens that a sequence decodes after its context.
int64_t decoded_tokens(const BenchConfig& config);
// The pools for the rows of one context and batch: the sequences, and one more to check them.
SequencePools throughput_pools(const BenchConfig& config, int64_t batch, int64_t context);

// The prefill and decode rows of config.phases for one context and batch, in this order; the subjects take turns.
std::vector<BenchRow> bench_throughput(const BenchConfig& config, std::span<const BenchSubject> subjects,
                                       MachineProbe& probe, int64_t batch, int64_t context);

}  // namespace verbatim::bench
