// traces/hit_rate.h: owns the hit rates of block-aligned caches on a recording, one per convention, because conventions
// change a hit rate by several points. The figures of traces/README.md come from here.
//
// A cache of whole blocks: a request looks up its blocks from the first one to the first miss (hits), then touches all
// of them, deepest first, and then the cache evicts down to its capacity by least recent use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "traces/read.h"

namespace verbatim::traces {

inline constexpr int64_t kUnlimited = -1;

// Sums over requests [first_row, end).
struct HitCount {
    int64_t requests = 0;
    int64_t requests_hit = 0;  // with at least one hit
    int64_t blocks = 0;        // looked up: all blocks of every prompt
    int64_t blocks_hit = 0;
    int64_t tokens = 0;
    int64_t tokens_hit = 0;        // min(blocks hit * block, prompt)
    double sum_request_rates = 0;  // of tokens_hit / prompt
    [[nodiscard]] double block_rate() const {
        return blocks == 0 ? 0 : static_cast<double>(blocks_hit) / static_cast<double>(blocks);
    }
    [[nodiscard]] double token_rate() const {
        return tokens == 0 ? 0 : static_cast<double>(tokens_hit) / static_cast<double>(tokens);
    }
    [[nodiscard]] double request_rate() const {
        return requests == 0 ? 0 : sum_request_rates / static_cast<double>(requests);
    }
};

struct HitRates {
    HitCount whole;        // all requests
    HitCount second_half;  // from request (number of requests) / 2 on: the steady state
};

// Counts a request with `blocks` blocks, of which the first `hits` were hits. A request without tokens counts nothing.
void add_request(const BlockLog& log, size_t request, int64_t blocks, int64_t hits, HitRates& rates);

[[nodiscard]] int64_t num_lookups(const BlockLog& log);
[[nodiscard]] int64_t num_unique_blocks(const BlockLog& log);
// At most `room_blocks` blocks stay after a request. Time and memory are linear in the lookups.
[[nodiscard]] HitRates lru_hit_rates(const BlockLog& log, int64_t room_blocks);
// Unlimited capacity; time is linear in the runs.
[[nodiscard]] HitRates unlimited_hit_rates(const BlockLog& log);

// Tokens that a cache of whole conversations would reuse if partial blocks were compared by id: reuse from an earlier
// request whose blocks, including the partial one, are a prefix of this one's, and whose prompt and output fit in it.
[[nodiscard]] int64_t literal_continuation_tokens(const BlockLog& log);

}  // namespace verbatim::traces
