// simulator/eviction_policies.h: rivals of least-recently-used for planners to compare (engine/cache/eviction.h).
//
// A rank is a place in the order of uses, `now`, plus a bonus of at most kHorizon uses: so a head that nobody uses goes
// in the end, however worthy it is.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "engine/cache/eviction.h"

namespace verbatim {

enum class EvictionChoice : uint8_t { kLru, kLfu, kSize, kFlops };

// What a head costs and saves.
struct HeadWorth {
    int64_t kv_bytes_per_token = 0;
    int64_t state_bytes = 0;
    double flops_per_token = 0;          // of everything but attention
    double flops_per_token_squared = 0;  // of attention: so much for every token and each before it
};

inline constexpr int64_t kHorizon = 4096;  // uses

//   lru    least recently used
//   lfu    fewest uses, then least recently used
//   size   kHorizon * (smallest bytes / bytes): small heads stay longer
//   flops  kHorizon * e / (1 + e), e = operations that the head saves per byte of its own, over those of a head of 4096
//          tokens
[[nodiscard]] std::unique_ptr<EvictionPolicy> make_eviction_policy(EvictionChoice choice, const HeadWorth& worth);

}  // namespace verbatim
