#include "engine/cache/eviction.h"

namespace verbatim {

std::optional<HeadId> LruEviction::choose(const EvictionView& view, Pool pool) {
    const std::optional<HeadId> oldest = view.first();
    for (auto head = oldest; head; head = view.after(*head)) {
        if (view.marginal_bytes(*head).of(pool) > 0) return head;
    }
    return oldest;
}

}  // namespace verbatim
