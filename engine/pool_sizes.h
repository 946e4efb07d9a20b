// engine/pool_sizes.h: owns how large the pools of KV blocks and state rows are: one answer for the cache, which hands
// out their numbers, and for the executors, which hold their bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/ids.h"

namespace verbatim {

struct PoolSizes {
    int32_t block_size = 16;     // tokens
    int32_t num_blocks = 0;      // 0: the model has no tensors per token (KV)
    int32_t num_state_rows = 0;  // 0: the model has no tensors per sequence (states)
    friend bool operator==(const PoolSizes&, const PoolSizes&) = default;
};

// One number of bytes that both pools draw on: blocks · block_bytes + rows · row_bytes <= total_bytes, in any mix.
struct PoolBudget {
    int64_t total_bytes = 0;  // 0: the pools' sizes are the only bounds
    int64_t block_bytes = 0;
    int64_t row_bytes = 0;
    friend bool operator==(const PoolBudget&, const PoolBudget&) = default;
};

// Units that have become free; some may be used again.
struct FreedUnits {
    std::vector<BlockRun> blocks;
    std::vector<RowRun> rows;
    void clear() {
        blocks.clear();
        rows.clear();
    }
};

}  // namespace verbatim
