// traces/conversations.h: which request goes on from which, by the rules of traces/README.md, and the Trace that
// follows.
//
//   V1  a request's predecessor is an earlier request of the same strand
//   V2  equal (strand, block id) means equal tokens, and so does equal (partial id, length); all else is the request's
//       own
//   V3  relations are found in the recorded lengths; scaling comes after and keeps them
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/result.h"
#include "traces/recording.h"
#include "traces/trace.h"

namespace verbatim::traces {

struct Link {
    int64_t from = -1;          // Recording::requests; -1: a root
    int64_t common_blocks = 0;  // full blocks in common with it
    Relation relation = Relation::kRoot;
};

// One per request.
[[nodiscard]] std::vector<Link> infer_links(const Recording& recording);

// Fills in the counts of rows, relations and tokens.
void count_links(const Recording& recording, const std::vector<Link>& links, ReadReport& report);

// Rows in the order of the recording, strand by strand; not yet sorted by time. Closed strands count time from their
// session's start. `tokens_per_id` of 0 keeps the recorded lengths.
[[nodiscard]] Trace make_trace(const Recording& recording, const std::vector<Link>& links, int64_t tokens_per_id);

}  // namespace verbatim::traces
