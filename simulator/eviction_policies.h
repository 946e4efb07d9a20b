// simulator/eviction_policies.h: owns alternatives to LRU for comparison (engine/cache/eviction.h).
//
// A rank is a position in the order of uses, `now`, plus a bonus of at most kHorizon uses: an unused head is evicted in
// the end, whatever its worth.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "engine/cache/eviction.h"

namespace verbatim {

enum class EvictionChoice : uint8_t { kValue, kLru, kLfu, kSize, kFlops };

// Costs and savings of a head.
struct HeadWorth {
    int64_t kv_bytes_per_token = 0;
    int64_t state_bytes = 0;
    double flops_per_token = 0;          // everything except attention
    double flops_per_token_squared = 0;  // attention: per token and preceding token
};

inline constexpr int64_t kHorizon = 4096;  // uses

//   value  least value per byte: ValueEviction (engine/cache/eviction.h), what the engine itself does
//   lru    least recently used
//   lfu    fewest uses, then least recently used
//   size   kHorizon * (smallest bytes / bytes): small heads stay longer
//   flops  kHorizon * e / (1 + e), e = operations that the head saves per byte that only it holds, relative to a head
//          of 4096 tokens
[[nodiscard]] std::unique_ptr<EvictionPolicy> make_eviction_policy(EvictionChoice choice, const HeadWorth& worth);

}  // namespace verbatim
