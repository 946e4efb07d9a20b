// traces/transform.h: owns the transformations of a trace after reading: select sessions, copy them, scale times, bound
// the context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/base/result.h"
#include "traces/read.h"
#include "traces/trace.h"

namespace verbatim::traces {

// Keeps only rows of sessions in the range. Error: a row has no session.
Status keep_sessions(Trace& trace, const SessionRange& range);

// The trace of these rows alone, in this order. REQUIRES: they ascend, and no removed row is one that a remaining row
// takes from, waits for or refers to.
[[nodiscard]] Trace only_rows(const Trace& trace, const std::vector<size_t>& rows);

// `copies` copies of every session: fresh conversations and texts (shared text stays shared). Copies of sessions with a
// recorded start begin at a seeded uniform time within the trace; `starts_follow`: start_sessions is called later.
Status copy_sessions(Trace& trace, int64_t copies, uint64_t seed, bool starts_follow);

// Times count from each session's start; the sessions start as a seeded Poisson process of `rate` per second, the first
// at 0.
void start_sessions(Trace& trace, double rate, uint64_t seed);

// Arrivals `rate_scale` times as fast, think times `think_scale` times as long. A row that waits for an answer keeps
// its distance from the row that it waits for, as its think time.
void scale_times(Trace& trace, double rate_scale, double think_scale);

// Restores R2; rows with equal arrival times keep their order.
void sort_by_arrival(Trace& trace);

// Rows whose prompt and answer exceed `max_context` are expected to be refused (kReject), or removed (kDrop); in that
// case rows that took from them get the tokens as own tokens. Returns the number of such rows. Error: kDrop where a
// suffix, regenerate or rewind would lose a turn.
Result<int64_t> bound_context(Trace& trace, int64_t max_context, OverContext over_context);

}  // namespace verbatim::traces
