#include "server/checkpoints.h"

#include <algorithm>

#include "engine/base/check.h"

namespace verbatim::server {
namespace {

constexpr int64_t kLeastText = 4;  // a role's name and the line's end are fewer
constexpr size_t kNewest = 4;

}  // namespace

std::vector<int64_t> message_ends(std::span<const TokenId> ids, const std::function<bool(TokenId)>& is_special) {
    std::vector<int64_t> ends;
    int64_t num_text = 0;  // tokens since the last special one
    for (size_t i = 0; i < ids.size(); ++i) {
        if (!is_special(ids[i])) {
            ++num_text;
            continue;
        }
        if (num_text >= kLeastText) ends.push_back(static_cast<int64_t>(i) + 1);
        num_text = 0;
    }
    return ends;
}

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
