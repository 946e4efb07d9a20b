// audit/expected_hits.h: owns the canary of a prefix cache: a trace's shape is sent to the server, and the tokens that
// it says it reused are held against those that a cache of blocks reuses by the simulator (simulator/block_cache.h).
//
// The prompts are made-up words, one for each token of the trace; what a row takes from another one is the same text
// again, with the answer that the server gave. Blocks of answers count from the first prompt that has them on, so the
// expected figure is what any prefix cache of that size should reach.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "audit/runner.h"
#include "audit/server_info.h"
#include "traces/trace.h"

namespace verbatim::audit {

struct HitsConfig {
    int64_t block_tokens = 16;
    int64_t room_tokens = 0;  // of the cache; 0: unlimited
    double tolerance = 0.1;   // of the expected hits that may be missing
    int64_t max_answer = 16;  // tokens
};

struct HitsRow {
    int64_t prompt_tokens = 0;
    int64_t reported = 0;
    int64_t sent_before = 0;  // of the prompt's first tokens: in an earlier request of this replay, or in its answer
};

struct HitsResult {
    std::vector<HitsRow> rows;
    int64_t prompt_tokens = 0;
    int64_t expected = 0;
    int64_t reported = 0;
    int64_t from_before = 0;  // of the reported: behind what this replay had sent, so the server knew it from elsewhere
    int64_t num_skipped = 0;  // too long for the server, taken from such a row, or no request
    std::string problem;      // why it ended early; empty: it did not
    bool is_reported = true;  // usage or /metrics has the figure
    double tolerance = 0;
    // The server had so much of the prompts already that its hits do not show that it kept them in this replay.
    [[nodiscard]] bool is_of_earlier_run() const;
    // Some hit could have been missing: the server tells of hits, rows of the trace have blocks in common, and it had
    // not seen them before.
    [[nodiscard]] bool has_compared() const { return is_reported && expected > 0 && !is_of_earlier_run(); }
    // The server reuses what it should, up to the tolerance, of what the replay had sent. REQUIRES: is_reported.
    [[nodiscard]] bool holds() const;
};

[[nodiscard]] HitsResult expect_hits(const traces::Trace& trace, const ServerInfo& info, Runner& runner,
                                     const HitsConfig& config, uint64_t seed);

}  // namespace verbatim::audit
