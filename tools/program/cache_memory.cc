#include "tools/program/cache_memory.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>

#include "engine/cache/budget.h"
#include "kernels/executors/executor_choice.h"
#include "tools/program/cli.h"

namespace verbatim::tools {

using namespace executors;
namespace {

std::optional<int64_t> given(const CLI::Option* option, uint64_t bytes) {
    if (option == nullptr || option->count() == 0) return std::nullopt;
    return static_cast<int64_t>(bytes);
}

}  // namespace

CacheBytes CacheBytesFlags::chosen() const {
    return {static_cast<int64_t>(cache_bytes), given(has_kv_bytes, kv_bytes), given(has_state_bytes, state_bytes)};
}

void add_cache_bytes_options(CLI::App& verb, CacheBytesFlags& flags) {
    add_bytes_option(verb, "--cache-bytes,--cache", flags.cache_bytes,
                     "for KV blocks and states together, in any mix, which moves while it runs");
    flags.has_kv_bytes =
        add_bytes_option(verb, "--kv-bytes", flags.kv_bytes, "of these, KV blocks have at most")->default_str("");
    flags.has_state_bytes =
        add_bytes_option(verb, "--state-bytes", flags.state_bytes, "of these, states have at most")->default_str("");
}

Result<CacheConfig> cache_within(const CacheBytes& bytes, const reference::ModelConfig& model, int32_t block_size) {
    const reference::ModelGeometry shape = reference::geometry(model);
    const UnitBytes unit = unit_bytes(shape, block_size);
    const auto pools = share_budget({bytes.total_bytes, bytes.kv_bytes, bytes.state_bytes}, unit);
    if (!pools) return error("--cache-bytes, --kv-bytes, --state-bytes: {}", pools.error().message);
    CacheConfig cache = cache_config(shape, *pools);
    cache.budget_bytes = bytes.total_bytes;
    cache.kv_block_bytes = unit.kv_block;
    cache.state_row_bytes = unit.state_row;
    return cache;
}

PoolBudget pool_budget(const CacheConfig& cache) {
    return {cache.budget_bytes, cache.kv_block_bytes, cache.state_row_bytes};
}

Status fit_into_memory(const std::string& executor, const CacheConfig& cache, int64_t drafter_bytes) {
    if (executor == "cuda") return executors::fit_into_memory(static_cast<double>(drafter_bytes));
    const double pools = static_cast<double>(cache.kv_block_bytes) * cache.pools.num_blocks +
                         static_cast<double>(cache.state_row_bytes) * cache.pools.num_state_rows;
    const double bytes = cache.budget_bytes > 0 ? std::min(pools, static_cast<double>(cache.budget_bytes)) : pools;
    return executors::fit_into_memory(bytes + static_cast<double>(drafter_bytes));
}

}  // namespace verbatim::tools
