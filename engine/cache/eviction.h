// engine/cache/eviction.h: which head goes when room is missing.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/base/ids.h"
#include "engine/cache/head.h"

namespace verbatim {

enum class Pool : uint8_t { kKv, kState };

// What evicting one head would free by itself: a head that shares all its blocks frees one state row.
struct MarginalBytes {
    int64_t kv_bytes = 0;
    int64_t state_bytes = 0;
    [[nodiscard]] int64_t of(Pool pool) const { return pool == Pool::kKv ? kv_bytes : state_bytes; }
};

// What a policy sees of the cache: the heads that may go, least recently used first, and what each costs.
class EvictionView {
public:
    virtual ~EvictionView() = default;
    [[nodiscard]] virtual std::optional<HeadId> first() const = 0;
    [[nodiscard]] virtual std::optional<HeadId> after(HeadId head) const = 0;
    [[nodiscard]] virtual MarginalBytes marginal_bytes(HeadId head) const = 0;
    // Tokens that must be computed again to have this head back: from the deepest other head of its names, else from zero.
    [[nodiscard]] virtual int64_t recompute_tokens(HeadId head) const = 0;
};

class EvictionPolicy {
public:
    virtual ~EvictionPolicy() = default;
    // The head to evict because `pool` is short. Empty only when no head may go.
    [[nodiscard]] virtual std::optional<HeadId> choose(const EvictionView& view, Pool pool) = 0;
};

// The least recently used head that frees something in the short pool; if every head shares all it has there, the least recently
// used one, so that the next choice frees what they shared.
class LruEviction final : public EvictionPolicy {
public:
    [[nodiscard]] std::optional<HeadId> choose(const EvictionView& view, Pool pool) override;
};

}  // namespace verbatim
