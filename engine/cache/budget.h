// engine/cache/budget.h: how many KV blocks and state rows a byte budget buys.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/base/result.h"
#include "engine/pool_sizes.h"

namespace verbatim {

// What one unit of either pool costs; 0 where the model has no such layers.
struct UnitBytes {
    int64_t kv_block = 0;
    int64_t state_row = 0;
    int32_t block_size = 16;  // tokens
};

// Tokens whose KV weighs as much as one state row, rounded up: shorter conversations are mostly state, longer ones
// mostly KV. 0 for a model without state or without KV.
[[nodiscard]] int64_t break_even_tokens(const UnitBytes& unit);

struct BudgetRequest {
    int64_t total_bytes = 0;             // split between the pools, unless both are given
    std::optional<int64_t> kv_bytes;     // of the KV pool
    std::optional<int64_t> state_bytes;  // of the state pool
};

// Pools that draw on one budget: as many units of each as the whole budget, or the pool's own limit, would hold.
// Errors: the budget holds less than one block and one row, or a limit is less than one unit.
[[nodiscard]] Result<PoolSizes> share_budget(const BudgetRequest& request, const UnitBytes& unit);

// A pool that the request names gets what it names; what is left of the total goes to the other. When it names neither,
// both get half: a head of break-even length takes as much of one pool as of the other, so that both are full at once
// of conversations of that length. Errors: a pool that the model needs gets less than one unit.
[[nodiscard]] Result<PoolSizes> split_budget(const BudgetRequest& request, const UnitBytes& unit);

}  // namespace verbatim
