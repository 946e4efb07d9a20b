// engine/scheduler/draft_path.h: where a deterministic request drafts: beside its own tokens it goes on in the ordinary
// arithmetic, as an ordinary request would, in one batch with these.
//
// A draft path is scratch: a slot, blocks and a state row of its own, branched off where the request's row stands. Its
// executor is fed the request's tokens and then what it draws itself; what it draws are the drafts of the request's
// next window. Windows that were accepted leave it as it is, a disagreement behind which it has gone on ends it.
#pragma once

#include <cstdint>

#include "engine/cache/cache.h"
#include "engine/step_plan.h"

namespace verbatim {

// Where tokens are computed: a slot, its memory, and what the executor knows of it.
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
