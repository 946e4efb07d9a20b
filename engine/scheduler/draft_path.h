// engine/scheduler/draft_path.h: a deterministic request's drafts: a second sequence that continues the request in the
// ordinary arithmetic, in one batch with ordinary requests.
//
// A draft path is scratch: a separate slot, blocks and state row, branched off at the length of the request's row. It
// computes the request's tokens and then the tokens that it samples, which are the drafts of the request's next window.
// An accepted window keeps the path. A rejected draft ends it, where the path has computed beyond that draft.
#pragma once

#include <cstdint>

#include "engine/cache/cache.h"
#include "engine/step_plan.h"

namespace verbatim {

// A slot, its memory, and what the executor has been sent for it.
struct SlotUse {
    SequenceSlot slot = kNoSlot;
    int64_t admission = 0;  // of the slot
    SequenceMemory memory;
    int64_t num_computed_tokens = 0;  // computed tokens catch up with tokens: no prefill or decode phase
    int32_t num_sent_blocks = 0;      // of memory.blocks, known to the executor
};

struct DraftPath : SlotUse {      // its tokens are the request's and the drafts
    int64_t num_sent_tokens = 0;  // of them, known to the executor

    [[nodiscard]] bool started() const { return memory.last_step != kNoStep; }  // the executor knows the slot
};

}  // namespace verbatim
