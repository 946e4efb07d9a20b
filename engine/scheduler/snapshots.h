// engine/scheduler/snapshots.h: owns the choice of the positions of a prompt at which heads are published.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/cache/cache.h"
#include "engine/cache/head.h"

namespace verbatim {

// A position at which the sequence publishes a head as it passes.
struct Snapshot {
    int64_t length = 0;
    HeadKind kind = HeadKind::kCheckpoint;
    friend bool operator==(const Snapshot&, const Snapshot&) = default;
};

struct SnapshotCandidates {
    std::span<const int64_t> message_ends;  // ascending
    int64_t num_prompt_tokens = 0;
    int64_t branch = 0;           // where the prompt leaves what earlier prompts had in common with it; 0: nowhere
    bool is_unseen = false;       // of a conversation's first prompt, what it computes was in no earlier prompt
    int32_t max_checkpoints = 4;  // the first message end and the newest others
};

// The prompt's end (length - 1, so that the last token gives logits), the branch point, and message ends before them;
// ascending. Of an unseen prompt, also a position before the last PrefixHistory::kStep tokens: the next prompt may have
// the same document and another question. A cache of blocks has one position (kept_block_prefix).
[[nodiscard]] std::vector<Snapshot> choose_snapshots(const SnapshotCandidates& candidates, const CacheConfig& cache);

}  // namespace verbatim
