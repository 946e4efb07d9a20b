#include "engine/scheduler/snapshots.h"

#include <algorithm>

#include "engine/base/check.h"

namespace verbatim {
namespace {

constexpr int64_t kShortestUnseen = 4 * PrefixHistory::kStep;  // to have a document and a question

void insert(std::vector<Snapshot>& chosen, const Snapshot& snapshot) {
    const auto at = std::ranges::lower_bound(chosen, snapshot.length, {}, &Snapshot::length);
    if (at == chosen.end() || at->length != snapshot.length) chosen.insert(at, snapshot);
}

}  // namespace

std::vector<Snapshot> choose_snapshots(const SnapshotCandidates& candidates, const CacheConfig& cache) {
    if (cache.lookup == LookupMode::kBlocks && cache.has_state) {
        const int64_t kept = kept_block_prefix(candidates.num_prompt_tokens, cache.pools.block_size);
        return kept > 0 ? std::vector{Snapshot{kept, HeadKind::kCheckpoint}} : std::vector<Snapshot>{};
    }
    const int64_t prompt_head = candidates.num_prompt_tokens - 1;
    std::vector<Snapshot> chosen;
    for (const int64_t end : candidates.message_ends) {
        if (end > 0 && end < prompt_head) chosen.push_back({end, HeadKind::kCheckpoint});
    }
    const auto too_many = static_cast<std::ptrdiff_t>(chosen.size()) - candidates.max_checkpoints;
    if (too_many > 0) {
        const std::ptrdiff_t keep_first = candidates.max_checkpoints > 0 ? 1 : 0;
        chosen.erase(chosen.begin() + keep_first, chosen.begin() + keep_first + too_many);
    }
    if (candidates.branch > 0 && candidates.branch < prompt_head)
        insert(chosen, {candidates.branch, HeadKind::kBranch});
    const bool takes_unseen = candidates.is_unseen && learns(cache) && cache.has_state;
    if (takes_unseen && candidates.num_prompt_tokens >= kShortestUnseen) {
        const int64_t num_steps = candidates.num_prompt_tokens / PrefixHistory::kStep;
        insert(chosen, {(num_steps - 1) * PrefixHistory::kStep, HeadKind::kCheckpoint});
    }
    if (prompt_head > 0) chosen.push_back({prompt_head, HeadKind::kPrompt});
    CHECK(std::ranges::is_sorted(chosen, {}, &Snapshot::length), "{} snapshots are in no order", chosen.size());
    return chosen;
}

}  // namespace verbatim
