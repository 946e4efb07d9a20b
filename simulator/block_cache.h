// simulator/block_cache.h: owns the hit rates of a cache of whole blocks without timing: `--cache-only`.
//
// The convention is that of traces/hit_rate.h, for any policy. Requests are processed in file order. Each request looks
// up its blocks from the first one to the first miss, inserts all of its blocks (pinned while it is served), touches
// them deepest first, and then the cache evicts down to its capacity.
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

// A log's blocks with dense numbers, as runs: a run's blocks are consecutive.
class DenseLog {
public:
    explicit DenseLog(const traces::BlockLog& log);
    struct Run {
        int32_t first = 0;
        int32_t count = 0;
    };
    [[nodiscard]] size_t num_requests() const { return ends_.size(); }
    [[nodiscard]] std::span<const Run> runs(size_t request) const;
    [[nodiscard]] int32_t num_blocks() const { return num_blocks_; }  // distinct ones
    [[nodiscard]] int64_t num_references() const { return num_references_; }

private:
    std::vector<Run> runs_;
    std::vector<size_t> ends_;
    int32_t num_blocks_ = 0;
    int64_t num_references_ = 0;
};

// `size` ranks like `lru` because all blocks have one size. `flops` adds a bonus by depth: the attention cost of a
// block's tokens grows with their position. `worth` gives the costs.
[[nodiscard]] traces::HitRates block_hit_rates(const traces::BlockLog& log, const DenseLog& dense, int64_t room_blocks,
                                               EvictionChoice choice, const HeadWorth& worth);

// The most block hits of any policy, with knowledge of the future. A block that is kept between two uses occupies one
// entry. When capacity is short, the block with the furthest next use is evicted (Belady). That is optimal for blocks
// of one size if hits need not be a prefix, and therefore an upper bound if they must be. Tokens: as if every hit were
// a full block.
struct OfflineBound {
    int64_t blocks_hit = 0;
    double block_rate = 0;
    double token_rate = 0;  // at most 1
};
[[nodiscard]] OfflineBound offline_bound(const traces::BlockLog& log, const DenseLog& dense, int64_t room_blocks);

}  // namespace verbatim
