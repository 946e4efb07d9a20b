// traces/conversations.h: owns the inference of which request continues which, by the rules of traces/README.md, and
// the resulting Trace.
//
//   V1  a request's predecessor is an earlier request of the same strand
//   V2  equal (strand, block id) means equal tokens, and so does equal (partial id, length); all other tokens are
//       unique to the request
//   V3  relations are inferred from the recorded lengths; scaling comes later and keeps them
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/result.h"
#include "traces/recording.h"
#include "traces/trace.h"

namespace verbatim::traces {

struct Link {
    int64_t from = -1;          // index in Recording::requests; -1: a root
    int64_t common_blocks = 0;  // full blocks in common with it
    Relation relation = Relation::kRoot;
};

// One link per request.
[[nodiscard]] std::vector<Link> infer_links(const Recording& recording);

// Fills in the counts of rows, relations and tokens.
void count_links(const Recording& recording, const std::vector<Link>& links, ReadReport& report);

// Rows in the order of the recording, strand by strand, not yet sorted by time. Times of closed strands count from
// their session's start. `tokens_per_id` 0 keeps the recorded lengths.
[[nodiscard]] Trace make_trace(const Recording& recording, const std::vector<Link>& links, int64_t tokens_per_id);

}  // namespace verbatim::traces
