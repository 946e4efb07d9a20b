// engine/publication/publication.h: owns what turns have computed and not yet published (step 7).
//
// pending -> materialised -> published: a pending is staged in the step that writes its last byte, waits until the
// executor says that the bytes are written, and then becomes a head with KV and state together (I7), or is given back.
//   U1  pendings leave in the order in which they came, none before its bytes are materialised
//   U2  a pending's memory becomes a head's or goes back to the cache, once
//   U3  a request has one pending turn at most, and no snapshot after it
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "engine/cache/cache.h"
#include "engine/scheduler/sequence.h"

namespace verbatim {

struct Pending {
    RequestId request{};
    HeadDraft head;
    int64_t staged_step = 0;             // writes its last byte
    SequenceSlot writer = kNoSlot;       // that wrote it, while the slot lives
    std::optional<FinishReason> finish;  // of a turn: how it ended; a snapshot has none
    [[nodiscard]] bool is_turn() const { return finish.has_value(); }
};

class Publication {
public:
    explicit Publication(Cache& cache) : cache_(cache) {}  // borrowed for its life

    // A head of the sequence's first `snapshot.length` tokens, which step `step` passes: the state row that it is to
    // write (kNoState: the model has none). Empty, and nothing is staged, when no row is free.
    [[nodiscard]] std::optional<StateIndex> stage_snapshot(const Sequence& sequence, const Snapshot& snapshot,
                                                           int64_t step);
    // The turn's head over `resident`, all that the sequence has computed: its memory is handed over.
    void stage_turn(Sequence& sequence, TokenSeq resident, FinishReason finish, int64_t step);
    // The oldest pending, if steps up to `materialised` have written it. Its memory is the caller's to publish or to
    // discard.
    [[nodiscard]] std::optional<Pending> take_ready(int64_t materialised);

    void discard(Pending pending);
    void discard_turn(RequestId request);                // if it has one
    void discard_snapshots(const ConversationKey& key);  // of turns that end without a commit
    void discard_all();
    // The slot's executor tables end: its snapshots are read from the pools from now on.
    void writer_ended(SequenceSlot slot);

    [[nodiscard]] const std::deque<Pending>& pendings() const { return pendings_; }
    [[nodiscard]] bool empty() const { return pendings_.empty(); }
    [[nodiscard]] bool knows(const ConversationKey& key) const;
    void verify() const;  // U1, U3 from scratch

private:
    void stage(const Sequence& sequence, HeadKind kind, PendingMemory memory, int64_t step,
               std::optional<FinishReason> finish);
    void discard_if(const std::function<bool(const Pending&)>& goes);

    Cache& cache_;
    std::deque<Pending> pendings_;
};

}  // namespace verbatim
