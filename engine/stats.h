// engine/stats.h: counters of a run. Integers only.
#pragma once

#include <array>
#include <cstdint>

#include "engine/cache/head.h"
#include "engine/ledger/ledger.h"

namespace verbatim {

//   N1  reused_tokens + computed_prompt_tokens = prompt tokens of the turns that got so far          (I10)
//   N2  sum(not_reused) = computed_prompt_tokens
//   N3  drafted_tokens = accepted_tokens + rolled_back_tokens; only the accepted ones are computed_output
struct EngineStats {
    int64_t requests = 0;  // submitted, refused ones and repeats included
    int64_t repeats = 0;   // answered from the ledger by turn_id
    int64_t steps = 0;
    int64_t reused_tokens = 0;    // prompt tokens that a head already held
    int64_t reusable_tokens = 0;  // prompt tokens that an unlimited cache would have reused, as far as it is known
    int64_t computed_prompt_tokens = 0;  // prompt tokens computed for the first time
    int64_t computed_output_tokens = 0;  // generated tokens computed for the first time
    int64_t recomputed_tokens = 0;       // computed again after a preemption
    int64_t generated_tokens = 0;
    int64_t windows = 0;             // steps of a request that sampled at drafts
    int64_t drafted_tokens = 0;      // in windows
    int64_t accepted_tokens = 0;     // of them: they became output
    int64_t rolled_back_tokens = 0;  // and they did not
    int64_t draft_path_tokens = 0;   // computed in ordinary arithmetic to draft for windows
    int64_t unwritten_rows = 0;      // steps of a request that did not write its state row (max_state_lag_tokens)
    int64_t attaches = 0;            // to a head
    int64_t tail_copies = 0;
    int64_t state_copies = 0;  // first steps that read a head's row and write the sequence's
    int64_t preemptions = 0;
    int64_t evictions = 0;
    int64_t imported_heads = 0;  // computed elsewhere (Engine::import_head)
    int64_t commits = 0;
    int64_t discards = 0;  // turns that ended without a commit
    int64_t aborts = 0;
    int64_t forks = 0;
    int64_t rewinds = 0;
    int64_t steps_without_room = 0;  // in which a waiting request stayed out for want of memory, not of token budget
    int64_t admission_lookups = 0;   // of waiting requests whose turn had come: at least one for each admission
    int64_t snapshots_without_room = 0;  // prompt heads and checkpoints not taken because no state row was free
    std::array<int64_t, static_cast<size_t>(NotReused::kCount)> not_reused{};
    std::array<int64_t, static_cast<size_t>(RefusalReason::kCount)> refusals{};

    friend bool operator==(const EngineStats&, const EngineStats&) = default;
};

}  // namespace verbatim
