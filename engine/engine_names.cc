// What clients do with conversations between turns.
#include "engine/base/check.h"
#include "engine/engine.h"

namespace verbatim {

OrRefusal<int64_t> Engine::fork(const ConversationKey& from, const std::string& to, std::optional<size_t> num_turns) {
    Call told = call(CallKind::kFork);
    told.key = from;
    told.to = to;
    told.num_turns = num_turns;
    recorder_.on_call(told);
    const auto length = ledger_.fork(from, to, num_turns);
    if (!length) return length;
    const ConversationKey key{from.salt, to};
    CHECK(ledger_.find(key) != nullptr, "the fork '{}' is not in the ledger", to);
    CHECK(*length > 0 && key != from, "a fork of '{}' of {} tokens", to, *length);
    drop_snapshots(key);
    cache_.fork(from, key);
    cache_.rewind(key, *length);
    ++stats_.forks;
    event(EventKind::kFork, RequestId{-1}, *length);
    return length;
}

OrRefusal<int64_t> Engine::rewind(const ConversationKey& key, size_t num_turns) {
    Call told = call(CallKind::kRewind);
    told.key = key;
    told.num_turns = num_turns;
    recorder_.on_call(told);
    const auto length = ledger_.rewind(key, num_turns);
    if (!length) return length;
    CHECK_GT(*length, 0);
    cache_.rewind(key, *length);
    ++stats_.rewinds;
    event(EventKind::kRewind, RequestId{-1}, *length);
    return length;
}

// Turns that never committed leave heads without a conversation: they can be deleted, too.
OrRefusal<int64_t> Engine::remove(const ConversationKey& key) {
    Call told = call(CallKind::kRemove);
    told.key = key;
    recorder_.on_call(told);
    const auto removed = ledger_.remove(key);
    const bool left = cache_.find(key) != nullptr || publication_.knows(key);
    if (!removed && !(removed.error().reason == RefusalReason::kUnknownConversation && left)) return removed;
    cache_.remove(key);
    drop_snapshots(key);
    CHECK(ledger_.find(key) == nullptr && cache_.find(key) == nullptr, "'{}' is there", key.conversation_id);
    event(EventKind::kDelete, RequestId{-1});
    return 0;
}

// Of turns that ended or cannot commit: else what they still publish would bring the name back.
void Engine::drop_snapshots(const ConversationKey& key) {
    publication_.discard_snapshots(key);
    for (const auto& [id, sequence] : sequences_) {
        if (sequence->request.conversation != key) continue;
        CHECK(!ledger_.is_live(sequence->turn.lease), "request {} of '{}' may yet commit", index(id),
              key.conversation_id);
        sequence->snapshots.clear();
        sequence->publishes_snapshots = false;
    }
}

bool Engine::restore(const ConversationKey& key, const std::vector<Message>& parts, Version version) {
    Call told = call(CallKind::kRestore);
    told.key = key;
    told.request.messages = parts;
    told.version = version;
    recorder_.on_call(told);
    if (parts.empty() || parts.size() % 2 != 0 || ledger_.find(key) != nullptr) return false;
    if (index(version) < static_cast<int64_t>(parts.size() / 2)) return false;
    for (size_t i = 0; i < parts.size(); i += 2) {
        if (parts[i].tokens.empty()) return false;
    }
    TokenSeq committed;
    std::vector<Turn> turns;
    std::vector<int64_t> lengths;
    for (size_t i = 0; i < parts.size(); i += 2) {
        Turn turn;
        committed.append(parts[i].tokens);
        turn.prompt_end = committed.size();
        committed.append(parts[i + 1].tokens);
        turn.end = committed.size();
        turn.num_text_tokens = turn.end - turn.prompt_end;
        turn.version = Version{static_cast<int64_t>(turns.size()) + 1};
        turns.push_back(std::move(turn));
        const int64_t seam = parts[i + 1].tokens.empty() ? 0 : 1;
        for (const int64_t length : {turns.back().prompt_end - 1, turns.back().end - seam}) {
            if (length > 0) lengths.push_back(length);
        }
    }
    ledger_.restore(key, std::move(committed), std::move(turns), version);
    cache_.note_lost(key, lengths);
    CHECK(ledger_.find(key) != nullptr && !ledger_.find(key)->leased_to, "'{}' is restored and leased",
          key.conversation_id);
    return true;
}

// A call that changes nothing is not recorded: the caller may ask for many conversations that are in use.
bool Engine::unload(const ConversationKey& key) {
    if (!ledger_.unload(key)) return false;
    Call told = call(CallKind::kUnload);
    told.key = key;
    recorder_.on_call(told);
    cache_.unload(key);
    const Name* name = cache_.find(key);
    CHECK(ledger_.find(key) == nullptr && (name == nullptr || name->has_heads()), "'{}' is unloaded and there",
          key.conversation_id);
    return true;
}

bool Engine::revoke(const ConversationKey& key) {
    Call told = call(CallKind::kRevoke);
    told.key = key;
    recorder_.on_call(told);
    if (!ledger_.revoke(key)) return false;
    CHECK(ledger_.find(key) == nullptr || !ledger_.find(key)->turns.empty(), "'{}' is left without a turn",
          key.conversation_id);
    event(EventKind::kRevoke, RequestId{-1});
    return true;
}

}  // namespace verbatim
