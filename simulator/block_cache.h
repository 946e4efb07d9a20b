// simulator/block_cache.h: hit rates of a cache of whole blocks without timing: `--cache-only`.
//
// The convention is that of traces/hit_rate.h, for any policy: requests come one after another in the order of the
// file; each looks its blocks up from the first one to the first that is absent, then has all of them in the cache
// (pinned while it is served), touches them the deepest first, then the cache is cut back to its room.
//   K1  with EvictionChoice::kLru the rates are traces::lru_hit_rates()
//   K2  no policy has more hits by block than offline_bound()
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "simulator/eviction_policies.h"
#include "traces/hit_rate.h"
#include "traces/read.h"

namespace verbatim {

// A log's blocks by dense numbers, as runs: blocks of one run are neighbours.
class DenseLog {
public:
    explicit DenseLog(const traces::BlockLog& log);
    struct Run {
        int32_t first = 0;
        int32_t count = 0;
    };
    [[nodiscard]] size_t num_requests() const { return ends_.size(); }
    [[nodiscard]] std::span<const Run> runs(size_t request) const;
    [[nodiscard]] int32_t num_blocks() const { return num_blocks_; }  // different ones
    [[nodiscard]] int64_t num_references() const { return num_references_; }

private:
    std::vector<Run> runs_;
    std::vector<size_t> ends_;
    int32_t num_blocks_ = 0;
    int64_t num_references_ = 0;
};

// `size` ranks as `lru`: blocks have one size. `flops` adds a bonus by depth: what a block's tokens cost in attention
// grows with what lies before them. `worth` says how much.
[[nodiscard]] traces::HitRates block_hit_rates(const traces::BlockLog& log, const DenseLog& dense, int64_t room_blocks,
                                               EvictionChoice choice, const HeadWorth& worth);

// The most block hits that any policy can have, knowing the future. Between two uses a block takes one place, if it is
// kept. Where places are short, the block whose next use is furthest away gives way (Belady). That is optimal for
// blocks of one size when hits need not be a prefix, so at least as much as with that need. Tokens: as if every hit
// were a full block.
struct OfflineBound {
    int64_t blocks_hit = 0;
    double block_rate = 0;
    double token_rate = 0;  // at most 1
};
[[nodiscard]] OfflineBound offline_bound(const traces::BlockLog& log, const DenseLog& dense, int64_t room_blocks);

}  // namespace verbatim
