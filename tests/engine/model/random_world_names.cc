// What random clients do with conversations between turns.
#include "tests/engine/model/random_world.h"
#include "tests/support/must.h"

namespace verbatim::tests {

void RandomWorld::rename() {
    const ConversationKey key = draw_key();
    load(key);
    const uint64_t what = prng_.below(4);
    if (what == 0) {
        const auto wanted =
            model_.remove(key, (engine_.cache().find(key) != nullptr || engine_.publication().knows(key)));
        coverage_.removed += wanted ? 0 : 1;
        if (!wanted) deleted_.insert(key);
        return expect_same(wanted, engine_.remove(key), "delete");
    }
    if (what == 1) {
        const size_t num_turns = prng_.below(5);
        return expect_same(model_.rewind(key, num_turns), engine_.rewind(key, num_turns), "rewind");
    }
    const std::string to = draw_key().conversation_id;
    const auto num_turns = chance(2) ? std::optional<size_t>(prng_.below(4)) : std::nullopt;
    load({key.salt, to});
    const auto wanted = model_.fork(key, to, num_turns);
    if (!wanted) deleted_.erase({key.salt, to});
    expect_same(wanted, engine_.fork(key, to, num_turns), "fork");
}

// A conversation that is not in use leaves the engine for a while. Its heads stay.
void RandomWorld::unload() {
    const ConversationKey key = draw_key();
    const auto known = model_.conversations().find(key);
    const bool wanted = known != model_.conversations().end() && known->second.answers.empty() &&
                        !model_.is_leased(key) && !unloaded_.contains(key);
    std::vector<Message> parts;
    for (size_t i = 0; wanted && i < known->second.turns.size(); ++i) {
        const ModelTurn& turn = known->second.turns[i];
        const auto tokens = known->second.committed.begin();
        const auto at = [&](size_t place) { return tokens + static_cast<std::ptrdiff_t>(place); };
        const size_t begin = i == 0 ? 0 : known->second.turns[i - 1].end;
        parts.push_back({store_.store(Tokens(at(begin), at(turn.prompt_end)))});
        parts.push_back({store_.store(Tokens(at(turn.prompt_end), at(turn.end)))});
    }
    MUST(engine_.unload(key) == wanted, "unload '{}'", key.conversation_id);
    if (!wanted) return;
    ++coverage_.unloaded;
    unloaded_[key] = std::move(parts);
    if (chance(4)) load(key);
}

// Before the engine hears of the conversation.
void RandomWorld::load(const ConversationKey& key) {
    const auto found = unloaded_.find(key);
    if (found == unloaded_.end()) return;
    MUST(engine_.restore(key, found->second, Version{model_.conversations().at(key).version}), "restore '{}'",
         key.conversation_id);
    model_.restored(key);
    unloaded_.erase(found);
}

void RandomWorld::expect_same(const std::optional<RefusalReason>& wanted, const OrRefusal<int64_t>& got,
                              const char* what) {
    MUST(got.has_value() == !wanted, "{}: wanted {}, got {}", what, wanted ? name(*wanted) : "success",
         got ? "success" : name(got.error().reason));
    MUST(got || got.error().reason == *wanted, "{}: wanted {}, got {}", what, name(*wanted), name(got.error().reason));
}

// The head that an executor elsewhere has computed of the call's tokens. Errors: it does not fit there.
Result<MadeHead> RandomWorld::make_head(const Call& call, TokenStore& store) const {
    HashExecutorConfig config = config_.executor;
    config.fail_one_in = 0;
    config.fault_token = -1;
    HashExecutor executor(config);
    EngineConfig engine = config_.engine;
    engine.scheduler.max_window = 1;
    ASSIGN_OR_RETURN(HeadCopy head, compute_head(engine, executor, store, call.request.messages[0].tokens));
    return MadeHead{head.digest, std::move(head.bytes)};
}

// Of a conversation's first tokens, or of others. It may come into a conversation that runs, or that was deleted.
void RandomWorld::import_head() {
    if (open_plan_ != nullptr) return;
    Call call{.kind = CallKind::kImportHead, .key = draw_key(), .to = cast_.executor().numerics_id()};
    const auto known = model_.conversations().find(call.key);
    Tokens tokens = known != model_.conversations().end() && !chance(4) ? known->second.committed : draw_tokens(20);
    if (chance(2)) tokens.resize(prng_.below(tokens.size() + 1));
    if (tokens.empty()) return;
    load(call.key);
    call.request.messages.push_back({store_.store(tokens)});
    const auto made = make_head(call, store_);
    if (!made) return;
    const size_t num_heads = engine_.cache().num_heads();
    const auto imported = engine_.import_head({.key = call.key,
                                               .tokens = call.request.messages[0].tokens,
                                               .numerics_id = call.to,
                                               .digest = made->digest,
                                               .bytes = made->bytes});
    MUST(imported || engine_.cache().num_heads() <= num_heads, "a head that was refused is there");
    if (imported) deleted_.erase(call.key);
}

}  // namespace verbatim::tests
