// engine/turn_commits.h: the end of turns (steps 6 and 7): what a turn computed is staged, becomes a head when its
// bytes are written, and moves the conversation's name.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/cache/cache.h"
#include "engine/event.h"
#include "engine/executor.h"
#include "engine/ledger/ledger.h"
#include "engine/publication/publication.h"
#include "engine/recorder.h"
#include "engine/scheduler/scheduler.h"
#include "engine/stats.h"

namespace verbatim {

// What turns are committed with; all of it is borrowed for the engine's life.
struct TurnCommitParts {
    Cache& cache;
    Ledger& ledger;
    Publication& publication;
    Scheduler& scheduler;
    TokenStore& store;
    EngineStats& stats;
    Recorder& recorder;
};

// `step` is the last step that was planned.
class TurnCommits {
public:
    // `digest_heads`: a published head carries the digest of its bytes.
    TurnCommits(const TurnCommitParts& parts, bool digest_heads) : parts_(parts), digest_heads_(digest_heads) {}

    // The sequence generates no more tokens. Its head needs the state where it ended: inside a window the row lies
    // behind that, and the turn is staged once a later step has moved it (Sequence::ending).
    void finish(Sequence& sequence, FinishReason reason, int64_t step);
    // REQUIRES: the sequence's row lies at its last computed token.
    void stage(Sequence& sequence, FinishReason reason, int64_t step);
    // Publishes the snapshots that steps through `materialised` have written, in the order in which they were staged,
    // up to the next turn, which is returned to be committed. The executor has their bytes. Empty: no turn is ready.
    [[nodiscard]] std::optional<Pending> publish_snapshots(Executor& executor, int64_t materialised, int64_t step);
    // The client's last event; the sequence's fields are not filled in. A turn without its lease is discarded.
    [[nodiscard]] FinishedEvent commit(Sequence& sequence, Pending pending, Executor& executor, int64_t step);
    // With digest_heads: every head's digest today is the one that it was published with (I3).
    void verify(Executor& executor) const;

private:
    HeadId publish(Pending pending, Executor& executor, int64_t step);
    [[nodiscard]] Digest digest_of(const Pending& pending, Executor& executor) const;

    TurnCommitParts parts_;
    bool digest_heads_;
};

}  // namespace verbatim
