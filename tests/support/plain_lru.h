// tests/support/plain_lru.h: the plain rival of LruEviction: heads go in the order of their last use, whatever that
// frees.
#pragma once

#include "engine/cache/eviction.h"

namespace verbatim {

class PlainLru final : public EvictionPolicy {
public:
    [[nodiscard]] int64_t rank(const HeadUse& use) override { return use.now; }
    [[nodiscard]] bool passes_over_held_blocks() const override { return false; }
};

}  // namespace verbatim
