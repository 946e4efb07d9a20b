// tests/support/plain_lru.h: the plain rival of LruEviction: heads go in the order of their last use, whatever that
// frees and whatever kind they are of.
#pragma once

#include "engine/cache/eviction.h"

namespace verbatim {

class PlainLru final : public EvictionPolicy {
public:
    [[nodiscard]] int64_t rank(const HeadUse& use) override { return use.now; }
    [[nodiscard]] bool goes_by_rank_alone() const override { return true; }
};

}  // namespace verbatim
