#include "server/checkpoints.h"

#include <algorithm>

#include "engine/base/check.h"

namespace verbatim::server {
namespace {

constexpr size_t kNewest = 4;

}  // namespace

std::vector<int64_t> spread_checkpoints(std::span<const int64_t> ends, int64_t num_tokens, size_t max_places) {
    CHECK(max_places > kNewest && (ends.empty() || ends.back() <= num_tokens), "{} places, {} ends of {} tokens",
          max_places, ends.size(), num_tokens);
    std::vector<int64_t> chosen;  // descending
    for (size_t i = ends.size(); i-- > 1 && chosen.size() + 1 < max_places;) {
        // The next one is more than twice as far from the end of the prompt as the last one chosen.
        const bool is_needed = chosen.size() < kNewest || num_tokens - ends[i - 1] > 2 * (num_tokens - chosen.back());
        if (is_needed) chosen.push_back(ends[i]);
    }
    if (!ends.empty()) chosen.push_back(ends.front());
    std::ranges::reverse(chosen);
    return chosen;
}

void keep_checkpoints(EngineConfig& config) {
    config.cache.keep_checkpoints = static_cast<int32_t>(kMaxCheckpoints);
    config.scheduler.max_checkpoints = static_cast<int32_t>(kMaxCheckpoints);
}

}  // namespace verbatim::server
