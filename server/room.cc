#include "server/room.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/check.h"

namespace verbatim::server {

namespace {

// Blocks that one request may have of the empty cache.
int64_t num_blocks_beside_a_row(const CacheConfig& cache) {
    const int64_t row = cache.has_state ? cache.state_row_bytes : 0;
    if (cache.budget_bytes == 0 || cache.kv_block_bytes == 0) return cache.pools.num_blocks;
    return std::min<int64_t>(cache.pools.num_blocks, (cache.budget_bytes - row) / cache.kv_block_bytes);
}

// State rows that the empty cache holds together with one block.
int64_t num_rows_beside_a_block(const CacheConfig& cache) {
    const int64_t block = cache.has_kv ? cache.kv_block_bytes : 0;
    if (cache.budget_bytes == 0 || cache.state_row_bytes == 0) return cache.pools.num_state_rows;
    return std::min<int64_t>(cache.pools.num_state_rows, (cache.budget_bytes - block) / cache.state_row_bytes);
}

}  // namespace

int64_t served_length(const CacheConfig& cache, int64_t positions) {
    CHECK(positions > 0, "a model of {} positions", positions);
    if (!cache.has_kv) return positions;
    return std::min<int64_t>(positions, (num_blocks_beside_a_row(cache) - 1) * cache.pools.block_size);
}

std::vector<std::string> room_lines(const CacheConfig& cache, int64_t positions) {
    const PoolSizes& pools = cache.pools;
    std::vector<std::string> lines;
    std::string holds;
    if (cache.has_kv) {
        holds = fmt::format("{} KV blocks ({} tokens)", pools.num_blocks, int64_t{pools.num_blocks} * pools.block_size);
    }
    const bool is_shared = cache.has_kv && cache.budget_bytes > 0;
    if (cache.has_state) {
        holds += fmt::format("{}{} states{}",
                             is_shared      ? " or "
                             : cache.has_kv ? ", "
                                            : "",
                             pools.num_state_rows, is_shared ? ", or any mix of as many bytes" : "");
    }
    lines.push_back(fmt::format("the cache holds {}", holds.empty() ? "nothing that a model needs" : holds));
    const int64_t length = served_length(cache, positions);
    if (length < positions) {
        lines.push_back(fmt::format("a request has {} tokens at most, the model takes {}: --cache-bytes bounds them",
                                    length, positions));
    }
    if (cache.has_state && num_rows_beside_a_block(cache) < 2)
        lines.push_back(
            "warning: one state is what a request itself needs: nothing can be reused; give more --cache-bytes");
    return lines;
}

}  // namespace verbatim::server
