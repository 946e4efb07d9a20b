#include "reference/records/causes.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "engine/request/request.h"

namespace verbatim::records {
namespace {

// Calls that no client makes: of the executor, and when a request's head is awaited.
bool is_of_machine(const Call& call) {
    return call.kind == CallKind::kFailStep || call.kind == CallKind::kReplaceExecutor ||
           call.kind == CallKind::kAwaitHead || call.kind == CallKind::kStopAwaiting;
}

bool runs_nothing(const Call& call) { return call.kind == CallKind::kSubmit && call.id == RequestId{-1}; }

// A version counts commits and forks, and their order is kept. The record has the outputs of an earlier try.
Cause cause_of(const Call& call) {
    Cause cause{call, {}};
    cause.call.request.parent.reset();
    cause.call.request.known_output.clear();
    return cause;
}

// The masks of all tokens are there from the beginning: each follows from the tokens before it alone.
void add_masks(const Call& allowed, Call& submitted) {
    std::vector<TokenMask>& masks = submitted.request.masks;
    masks.insert(masks.end(), allowed.request.masks.begin(), allowed.request.masks.end());
}

// Without any result: calls alone.
Causes only_calls(const Record& record) {
    Causes causes;
    std::map<RequestId, size_t> submitted;  // by request, its place in causes.calls
    for (const Entry& entry : record.entries) {
        const auto* call = std::get_if<Call>(&entry);
        if (call != nullptr && call->kind == CallKind::kAllow) {
            const auto found = submitted.find(call->id);
            if (found != submitted.end()) add_masks(*call, causes.calls[found->second].call);
            continue;
        }
        if (call == nullptr || is_of_machine(*call) || runs_nothing(*call)) continue;
        if (call->kind == CallKind::kSubmit) submitted[call->id] = causes.calls.size();
        causes.calls.push_back(cause_of(*call));
    }
    return causes;
}

// Reads a record from its first entry to its last, with the leases as they were.
class CauseReader {
public:
    void read(const Call& call) {
        switch (call.kind) {
            case CallKind::kSubmit: return submit(call);
            case CallKind::kAbort: return leave(call.id, call.step);
            case CallKind::kEndTurn: return end_turn(call.id);
            case CallKind::kAllow: return allow(call);
            case CallKind::kRevoke: return revoke(call.key);
            case CallKind::kFork: return fork(call);
            case CallKind::kRewind:
            case CallKind::kRemove:
            case CallKind::kRestore:
            case CallKind::kUnload:
            case CallKind::kImportHead:
                if (!live_.contains(call.key)) add(call, {call.key});
                return;
            case CallKind::kFailStep:  // events say which turns it ended
            case CallKind::kReplaceExecutor:
            case CallKind::kAwaitHead:
            case CallKind::kStopAwaiting:
            case CallKind::kCount: return;
        }
    }
    void read(const StepRecord& step) {
        for (const SequenceRecord& sequence : step.sequences) {
            Turn* turn = find(sequence.request);
            if (turn == nullptr || (sequence.ordinary && turn->deterministic)) continue;
            turn->end.num_computed = std::max(turn->end.num_computed, sequence.end);
        }
    }
    void read(const Reported& reported) {
        for (const ReportedToken& token : reported.tokens) {
            if (Turn* turn = find(token.request)) ++turn->end.num_tokens;
        }
        for (const Event& event : reported.events) {
            if (event.kind == EventKind::kCommit) end(event.request, std::nullopt);
            if (event.kind == EventKind::kDiscard) end(event.request, static_cast<FinishReason>(event.value));
        }
    }

    // K2: a turn takes the place behind the last fork of its conversation that came before its commit.
    Causes causes() {
        Causes made;
        for (const auto& [id, turn] : turns_) {
            made.ends[id] = turn.end;
            const bool commits = turn.end.kind == TurnEnd::Kind::kByItself || turn.end.kind == TurnEnd::Kind::kEnded;
            if (!commits || turn.forks.empty()) continue;
            for (const size_t fork : turn.forks) {
                int64_t& step = placed_[fork].cause.call.step;
                step = std::min(step, placed_[turn.place].cause.call.step);
            }
            placed_[turn.place].order = {turn.forks.back(), 1};
        }
        std::ranges::stable_sort(placed_, {}, &Placed::order);
        for (Placed& placed : placed_) made.calls.push_back(std::move(placed.cause));
        return made;
    }

private:
    struct Placed {
        Cause cause;
        std::pair<size_t, int> order;
    };
    struct Turn {
        ConversationKey key;
        bool deterministic = true;
        bool is_over = false;
        bool was_ended = false;     // by its client
        size_t place = 0;           // of its submission
        std::vector<size_t> forks;  // of its conversation while it had the lease
        TurnEnd end;
    };

    Turn* find(RequestId id) {
        const auto found = turns_.find(id);
        return found == turns_.end() ? nullptr : &found->second;
    }
    Turn* live(const ConversationKey& key) {
        const auto found = live_.find(key);
        return found == live_.end() ? nullptr : find(found->second);
    }
    void give_back(RequestId id, const Turn& turn) {
        const auto found = live_.find(turn.key);
        if (found != live_.end() && found->second == id) live_.erase(found);
    }
    size_t add(const Call& call, const std::vector<ConversationKey>& keys) {
        Cause cause = cause_of(call);
        for (const ConversationKey& key : keys) {
            cause.over.insert(cause.over.end(), over_[key].begin(), over_[key].end());
        }
        placed_.push_back({std::move(cause), {placed_.size(), 0}});
        return placed_.size() - 1;
    }

    void submit(const Call& call) {
        if (runs_nothing(call)) return;
        const ConversationKey& key = call.request.conversation;
        Turn& turn = turns_[call.id];
        turn.key = key;
        turn.deterministic = call.request.deterministic;
        turn.place = add(call, {key});
        live_[key] = call.id;
    }
    void leave(RequestId id, int64_t step) {
        Turn* turn = find(id);
        if (turn == nullptr || turn->is_over) return;
        turn->end.kind = TurnEnd::Kind::kLeft;
        turn->end.step = step;
        give_back(id, *turn);
    }
    void end_turn(RequestId id) {
        Turn* turn = find(id);
        if (turn != nullptr && !turn->is_over) turn->was_ended = true;
    }
    void allow(const Call& call) {
        if (const Turn* turn = find(call.id)) add_masks(call, placed_[turn->place].cause.call);
    }
    void revoke(const ConversationKey& key) {
        Turn* turn = live(key);
        if (turn == nullptr) return;
        turn->end.kind = TurnEnd::Kind::kRevoked;
        live_.erase(key);
    }
    void fork(const Call& call) {
        const ConversationKey to{call.key.salt, call.to};
        if (live_.contains(to)) return;
        const size_t place = add(call, {call.key, to});
        if (Turn* turn = live(call.key)) turn->forks.push_back(place);
    }
    // `discarded`: why; none: it was committed.
    void end(RequestId id, std::optional<FinishReason> discarded) {
        Turn* turn = find(id);
        if (turn == nullptr || turn->is_over) return;
        turn->is_over = true;
        over_[turn->key].push_back(id);
        give_back(id, *turn);
        if (!discarded && turn->was_ended) turn->end.kind = TurnEnd::Kind::kEnded;
        if (discarded == FinishReason::kLeaseLost)
            turn->end.kind = turn->was_ended ? TurnEnd::Kind::kLeft : TurnEnd::Kind::kRevoked;
        if (discarded == FinishReason::kAborted || discarded == FinishReason::kExecutorFailed ||
            discarded == FinishReason::kAnswerChanged)
            turn->end.kind = TurnEnd::Kind::kLeft;
    }

    std::vector<Placed> placed_;
    std::map<RequestId, Turn> turns_;
    std::map<ConversationKey, RequestId> live_;  // the turn that has the lease
    std::map<ConversationKey, std::vector<RequestId>> over_;
};

}  // namespace

Causes causes_of(const Record& record) {
    const auto is_call = [](const Entry& entry) { return std::holds_alternative<Call>(entry); };
    if (std::ranges::all_of(record.entries, is_call)) return only_calls(record);
    CauseReader reader;
    for (const Entry& entry : record.entries) {
        std::visit([&](const auto& value) { reader.read(value); }, entry);
    }
    return reader.causes();
}

}  // namespace verbatim::records
