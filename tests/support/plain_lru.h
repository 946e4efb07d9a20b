// tests/support/plain_lru.h: a baseline for LruEviction: evicts heads in order of last use, whatever their size and
// kind.
#pragma once

#include "engine/cache/eviction.h"

namespace verbatim {

class PlainLru final : public EvictionPolicy {
public:
    [[nodiscard]] int64_t rank(const HeadUse& use) override { return use.now; }
    [[nodiscard]] bool goes_by_rank_alone() const override { return true; }
};

}  // namespace verbatim
