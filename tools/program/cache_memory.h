// tools/program/cache_memory.h: the cache of a model within one number of bytes, and the flags that say how many.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/base/result.h"
#include "engine/cache/cache.h"
#include "engine/pool_sizes.h"
#include "reference/model/model_config.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace verbatim::tools {

// KV blocks and state rows together have `total_bytes`, in any mix; `kv_bytes` and `state_bytes` limit one kind.
struct CacheBytes {
    int64_t total_bytes = 0;
    std::optional<int64_t> kv_bytes;
    std::optional<int64_t> state_bytes;
};

// --cache-bytes (also --cache), --kv-bytes, --state-bytes.
struct CacheBytesFlags {
    uint64_t cache_bytes = 0;  // the default
    uint64_t kv_bytes = 0;
    uint64_t state_bytes = 0;
    CLI::Option* has_kv_bytes = nullptr;
    CLI::Option* has_state_bytes = nullptr;
    [[nodiscard]] CacheBytes chosen() const;
};
void add_cache_bytes_options(CLI::App& verb, CacheBytesFlags& flags);

// Pools of as many units of each kind as the bytes, or the kind's limit, hold, under one budget. Errors: too little for
// a block and a row.
Result<CacheConfig> cache_within(const CacheBytes& bytes, const reference::ModelConfig& model, int32_t block_size);

// What executors share between both kinds.
[[nodiscard]] PoolBudget pool_budget(const CacheConfig& cache);

// Whether the bytes that the cache of this executor may hold, where they are not a device's, and a drafter's have room
// in this machine's memory, if nothing else had. Error: kMachine.
Status fit_into_memory(const std::string& executor, const CacheConfig& cache, int64_t drafter_bytes);

}  // namespace verbatim::tools
