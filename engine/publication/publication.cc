#include "engine/publication/publication.h"

#include <algorithm>
#include <set>
#include <utility>

#include "engine/base/check.h"

namespace verbatim {

void Publication::stage(const Sequence& sequence, HeadKind kind, PendingMemory memory, int64_t step,
                        std::optional<FinishReason> finish) {
    CHECK(!memory.tokens.empty() && finish.has_value() == (kind == HeadKind::kTurn), "a {} of {} tokens", name(kind),
          memory.tokens.size());
    CHECK(pendings_.empty() || pendings_.back().staged_step <= step, "staged in step {} after step {}", step,
          pendings_.back().staged_step);
    pendings_.push_back({.request = sequence.id,
                         .head = {sequence.request.conversation, kind, sequence.numerics_id, std::move(memory)},
                         .staged_step = step,
                         .writer = sequence.slot,
                         .finish = finish});
}

std::optional<StateIndex> Publication::stage_snapshot(const Sequence& sequence, const Snapshot& snapshot,
                                                      int64_t step) {
    CHECK(snapshot.kind != HeadKind::kTurn && snapshot.length < sequence.num_prompt_tokens(), "a {} of {} tokens",
          name(snapshot.kind), snapshot.length);
    auto memory = cache_.snapshot(sequence.memory, sequence.turn.prompt.slice(0, snapshot.length));
    if (!memory) return std::nullopt;
    const StateIndex row = memory->state;
    CHECK_EQ(row != kNoState, cache_.state().enabled());
    stage(sequence, snapshot.kind, *std::move(memory), step, std::nullopt);
    return row;
}

void Publication::stage_turn(Sequence& sequence, TokenSeq resident, FinishReason finish, int64_t step) {
    CHECK(std::ranges::none_of(pendings_, [&](const Pending& p) { return p.is_turn() && p.request == sequence.id; }),
          "request {} has ended before", index(sequence.id));
    CHECK_EQ(resident.size(), sequence.num_computed_tokens);
    PendingMemory memory = cache_.detach_as_pending(sequence.memory, std::move(resident));
    CHECK(sequence.memory.state == kNoState, "request {} has handed over state row {}", index(sequence.id),
          index(sequence.memory.state));
    stage(sequence, HeadKind::kTurn, std::move(memory), step, finish);
}

std::optional<Pending> Publication::take_ready(int64_t materialised) {
    if (pendings_.empty()) return std::nullopt;
    if (pendings_.front().staged_step > materialised) return std::nullopt;
    Pending ready = std::move(pendings_.front());
    pendings_.pop_front();
    CHECK(pendings_.empty() || pendings_.front().staged_step >= ready.staged_step,
          "a pending of step {} leaves before one of step {}", ready.staged_step, pendings_.front().staged_step);
    CHECK(!ready.head.memory.tokens.empty() && (ready.head.memory.state != kNoState) == cache_.state().enabled(),
          "a pending of {} tokens with row {}", ready.head.memory.tokens.size(), index(ready.head.memory.state));
    return ready;
}

void Publication::discard(Pending pending) { cache_.discard(pending.head.memory, pending.staged_step); }

void Publication::discard_turn(RequestId request) {
    const auto turn =
        std::ranges::find_if(pendings_, [&](const Pending& p) { return p.is_turn() && p.request == request; });
    if (turn == pendings_.end()) return;
    CHECK(turn->head.kind == HeadKind::kTurn && !turn->head.memory.tokens.empty(), "a {} is a turn",
          name(turn->head.kind));
    discard(std::move(*turn));
    pendings_.erase(turn);
    CHECK(std::ranges::none_of(pendings_, [&](const Pending& p) { return p.is_turn() && p.request == request; }),
          "request {} had two turns", index(request));
}

void Publication::discard_snapshots(const ConversationKey& key) {
    discard_if([&](const Pending& pending) { return !pending.is_turn() && pending.head.key == key; });
}

void Publication::discard_all() {
    discard_if([](const Pending&) { return true; });
}

// Each gives back one state row, where there are any (U2).
void Publication::discard_if(const std::function<bool(const Pending&)>& goes) {
    const size_t num_before = pendings_.size();
    const int32_t num_rows = cache_.state().pool().num_used();
    std::erase_if(pendings_, [&](Pending& pending) {
        if (!goes(pending)) return false;
        discard(std::move(pending));
        return true;
    });
    const auto num_gone = static_cast<int32_t>(num_before - pendings_.size());
    CHECK(cache_.state().pool().num_used() == num_rows - (cache_.state().enabled() ? num_gone : 0),
          "{} pendings held {} of {} state rows", num_gone, num_rows - cache_.state().pool().num_used(), num_rows);
}

void Publication::writer_ended(SequenceSlot slot) {
    CHECK_NE(index(slot), index(kNoSlot));
    for (Pending& pending : pendings_) {
        if (pending.writer == slot) pending.writer = kNoSlot;
    }
}

bool Publication::knows(const ConversationKey& key) const {
    return std::ranges::any_of(pendings_, [&](const Pending& pending) { return pending.head.key == key; });
}

void Publication::verify() const {
    std::set<RequestId> ended;
    for (size_t i = 0; i < pendings_.size(); ++i) {
        const Pending& pending = pendings_[i];
        CHECK(i == 0 || pendings_[i - 1].staged_step <= pending.staged_step, "pending {} of step {} after step {}", i,
              pending.staged_step, pendings_[i - 1].staged_step);
        CHECK(!ended.contains(pending.request), "request {} stages after its end", index(pending.request));
        if (pending.is_turn()) ended.insert(pending.request);
        CHECK_EQ(pending.is_turn(), pending.head.kind == HeadKind::kTurn);
    }
}

}  // namespace verbatim
