#include "engine/cache/budget.h"

#include <algorithm>
#include <limits>

namespace verbatim {
namespace {

Result<int32_t> units_of(const char* pool, const char* unit_name, int64_t bytes, int64_t unit_bytes) {
    if (unit_bytes == 0) return 0;
    const int64_t units = bytes / unit_bytes;
    if (units < 1)
        return error("{} pool: {} bytes, one {} takes {}: give it at least that", pool, bytes, unit_name, unit_bytes);
    return static_cast<int32_t>(std::min<int64_t>(units, std::numeric_limits<int32_t>::max()));
}

bool has_negative_bytes(const BudgetRequest& request) {
    return request.total_bytes < 0 || request.kv_bytes.value_or(0) < 0 || request.state_bytes.value_or(0) < 0;
}

}  // namespace

int64_t break_even_tokens(const UnitBytes& unit) {
    if (unit.kv_block == 0) return 0;
    return (unit.state_row * unit.block_size + unit.kv_block - 1) / unit.kv_block;
}

Result<PoolSizes> share_budget(const BudgetRequest& request, const UnitBytes& unit) {
    if (has_negative_bytes(request)) return error("a cache budget is negative");
    if (request.total_bytes < unit.kv_block + unit.state_row) {
        return error("a cache of {} bytes: one KV block takes {} and one state row {}: give it at least that",
                     request.total_bytes, unit.kv_block, unit.state_row);
    }
    const auto limit = [&](const std::optional<int64_t>& bytes) {
        return std::min(bytes.value_or(request.total_bytes), request.total_bytes);
    };
    PoolSizes pools{.block_size = unit.block_size};
    ASSIGN_OR_RETURN(pools.num_blocks, units_of("KV", "block", limit(request.kv_bytes), unit.kv_block));
    ASSIGN_OR_RETURN(pools.num_state_rows, units_of("state", "row", limit(request.state_bytes), unit.state_row));
    return pools;
}

Result<PoolSizes> split_budget(const BudgetRequest& request, const UnitBytes& unit) {
    if (has_negative_bytes(request)) return error("a cache budget is negative");
    const int64_t left =
        std::max<int64_t>(0, request.total_bytes - request.kv_bytes.value_or(0) - request.state_bytes.value_or(0));
    const bool both_open = !request.kv_bytes && !request.state_bytes && unit.kv_block > 0 && unit.state_row > 0;
    const int64_t open_share = both_open ? left / 2 : left;
    PoolSizes pools{.block_size = unit.block_size};
    ASSIGN_OR_RETURN(pools.num_blocks, units_of("KV", "block", request.kv_bytes.value_or(open_share), unit.kv_block));
    ASSIGN_OR_RETURN(pools.num_state_rows,
                     units_of("state", "row", request.state_bytes.value_or(open_share), unit.state_row));
    return pools;
}

}  // namespace verbatim
