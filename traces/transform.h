// traces/transform.h: what options do to a trace that has been read: choose sessions, copy them, move times, bound the
// context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/base/result.h"
#include "traces/read.h"
#include "traces/trace.h"

namespace verbatim::traces {

// Only rows of sessions in the range stay. Error: a row has no session.
Status keep_sessions(Trace& trace, const SessionRange& range);

// The trace of these rows alone, in this order. REQUIRES: they ascend, and no row that is left out is one that another
// takes from, waits for or names.
[[nodiscard]] Trace only_rows(const Trace& trace, const std::vector<size_t>& rows);

// `copies` of every session beside each other: fresh conversations and texts (shared text stays shared). Copies of
// sessions that have a recorded start begin at a seeded uniform time within the trace; `starts_follow`: start_sessions
// comes after this.
Status copy_sessions(Trace& trace, int64_t copies, uint64_t seed, bool starts_follow);

// Times count from each session's start; the sessions start as a seeded Poisson process of `rate` per second, the first
// at 0.
void start_sessions(Trace& trace, double rate, uint64_t seed);

// Arrivals `rate_scale` times as fast, think times `think_scale` times as long. A row that waits for an answer keeps
// its distance to the row that it waits for, which then is its think time.
void scale_times(Trace& trace, double rate_scale, double think_scale);

// Restores R2; rows that arrive together keep their order.
void sort_by_arrival(Trace& trace);

// Rows whose prompt and answer exceed `max_context`: expected to be refused (kReject), or taken out (kDrop), in which
// case rows that took from them get the tokens as their own. How many rows there were. Error: kDrop where a suffix,
// regenerate or rewind would lose a turn.
Result<int64_t> bound_context(Trace& trace, int64_t max_context, OverContext over_context);

}  // namespace verbatim::traces
