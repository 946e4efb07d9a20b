#include "engine/cache/lookup.h"

#include <algorithm>

#include "engine/base/check.h"

namespace verbatim {

int64_t kept_block_prefix(int64_t num_prompt_tokens, int32_t block_size) {
    return std::max<int64_t>((num_prompt_tokens - 1 - block_size) / block_size * block_size, 0);
}

std::vector<NotReusedRange> explain(const LookupQuery& query, int64_t attached, NotReusedRange missed) {
    CHECK(attached >= 0 && attached <= query.max_length(), "{} of {} tokens are attached", attached,
          query.tokens.size());
    std::vector<NotReusedRange> ranges;
    int64_t done = attached;
    const int64_t size = query.tokens.size();
    const int64_t first_scored = std::min(query.first_scored.value_or(size), size);
    const auto until = [&](int64_t end, NotReused reason) {
        end = std::min(end, first_scored);
        if (end <= done) return;
        ranges.push_back({end, reason});
        done = end;
    };
    if (!query.use_cache) return {{size, NotReused::kCacheOff}};
    until(std::min(query.num_unrestored, query.max_length()), NotReused::kSlowToRestore);
    until(missed.end, missed.reason);
    const int64_t committed = std::min(query.num_committed, size - 1);
    if (query.seam && *query.seam < committed) {
        until(*query.seam, NotReused::kBetweenHeads);
        until(*query.seam + 1, NotReused::kSeam);
    }
    until(committed, NotReused::kBetweenHeads);
    if (query.num_committed >= size) until(size, NotReused::kLastToken);
    until(size, query.num_committed == 0 && attached == 0 ? NotReused::kNewConversation : NotReused::kNewTokens);
    if (done < size) ranges.push_back({size, NotReused::kScored});
    CHECK_EQ(done, first_scored);
    return ranges;
}

std::vector<NotReusedRange> explain_known(const LookupResult& found, int64_t max_length,
                                          std::initializer_list<NotReusedRange> known) {
    std::vector<NotReusedRange> ranges;
    int64_t done = found.length;
    const auto until = [&](int64_t end, NotReused reason) {
        if (end <= done) return;
        done = end;
        if (ranges.empty() || ranges.back().reason != reason) {
            ranges.push_back({end, reason});
        } else {
            ranges.back().end = end;
        }
    };
    for (const NotReusedRange& range : found.not_reused) {
        const bool looks_new = range.reason == NotReused::kNewConversation || range.reason == NotReused::kNewTokens ||
                               range.reason == NotReused::kBetweenHeads;
        for (const NotReusedRange& better : known) {
            if (looks_new) until(std::min({better.end, range.end, max_length}), better.reason);
        }
        until(range.end, range.reason);
    }
    CHECK(found.not_reused.empty() || done == found.not_reused.back().end, "tokens [{}, ...) have no reason", done);
    return ranges;
}

}  // namespace verbatim
