#include "server/room.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/check.h"

namespace verbatim::server {

int64_t served_length(const CacheConfig& cache, int64_t positions) {
    CHECK(positions > 0, "a model of {} positions", positions);
    if (!cache.has_kv) return positions;
    return std::min<int64_t>(positions, int64_t{cache.pools.num_blocks - 1} * cache.pools.block_size);
}

std::vector<std::string> room_lines(const CacheConfig& cache, int64_t positions) {
    const PoolSizes& pools = cache.pools;
    std::vector<std::string> lines;
    std::string holds;
    if (cache.has_kv) {
        holds = fmt::format("{} KV blocks ({} tokens)", pools.num_blocks, int64_t{pools.num_blocks} * pools.block_size);
    }
    if (cache.has_state) holds += fmt::format("{}{} states", cache.has_kv ? ", " : "", pools.num_state_rows);
    lines.push_back(fmt::format("the cache holds {}", holds.empty() ? "nothing that a model needs" : holds));
    const int64_t length = served_length(cache, positions);
    if (length < positions) {
        lines.push_back(
            fmt::format("a request has {} tokens at most, the model takes {}: --cache bounds them", length, positions));
    }
    if (cache.has_state && pools.num_state_rows < 2)
        lines.push_back("warning: one state is what a request itself needs: nothing can be reused; give more --cache");
    return lines;
}

}  // namespace verbatim::server
