#include "server/ledger/conversation_calls.h"

#include <fmt/format.h>

#include <utility>

#include "engine/base/check.h"
#include "server/heads/tier_link.h"

namespace verbatim::server {
namespace {

using text::Json;
using Done = std::function<void(ConversationReply)>;

Json or_null(const std::optional<std::string>& text) { return text ? Json(*text) : Json(); }

Json turn_json(const TurnRow& turn, int64_t begin) {
    return {{"turn_id", or_null(turn.turn_id)},
            {"new_prompt_tokens", turn.prompt_end - begin},
            {"prompt_tokens", turn.prompt_end},
            {"completion_tokens", turn.end - turn.prompt_end},
            {"finish_reason", turn.finish == FinishReason::kLength ? "length" : "stop"}};
}

// The states that are kept of it, and the KV blocks that they share by number.
Json heads_json(const Engine& engine, const ConversationKey& key) {
    Json heads = Json::array();
    const Name* name = engine.cache().find(key);
    if (name == nullptr) return heads;
    for (const NamedHead& entry : name->heads) {
        const Head& head = *engine.cache().find(entry.head);
        Json blocks = Json::array();
        for (const BlockRun& run : engine.cache().kv().runs(head.blocks))
            blocks.push_back(Json::array({index(run.first), run.count}));
        heads.push_back({{"kind", verbatim::name(entry.kind)},
                         {"length", entry.length},
                         {"blocks", std::move(blocks)},
                         {"state_row", head.state == kNoState ? Json() : Json(index(head.state))}});
    }
    return heads;
}

Refusal unknown(const ConversationKey& key) {
    return {.reason = RefusalReason::kUnknownConversation,
            .conversation = key.conversation_id,
            .problem = " has no committed turn"};
}

ConversationReply show(const ConversationCall& call, const Engine& engine, const ConversationLedger& ledger) {
    const auto view = ledger.view(call.key);
    if (!view) return {.refusal = unknown(call.key)};
    Json json = {{"id", call.key.conversation_id},
                 {"object", "conversation"},
                 {"head_id", view->head},
                 {"num_turns", view->turns.size()},
                 {"num_tokens", view->turns.back()->end}};
    const Ledger::Conversation* conversation = engine.ledger().find(call.key);
    json["busy"] = conversation != nullptr && conversation->leased_to.has_value();
    int64_t begin = 0;
    for (const TurnPtr& turn : view->turns) {
        json["turns"].push_back(turn_json(*turn, begin));
        begin = turn->end;
    }
    json["heads"] = heads_json(engine, call.key);
    return {.json = std::move(json), .view = call.with_content ? view : std::nullopt};
}

// The longest of its heads.
ConversationReply export_head(const ConversationKey& key, Engine& engine) {
    const Name* name = engine.cache().find(key);
    const NamedHead* longest = nullptr;
    if (name != nullptr) {
        for (const NamedHead& listed : name->heads) {
            if (longest == nullptr || listed.length >= longest->length) longest = &listed;
        }
    }
    ConversationReply reply;
    if (longest != nullptr) reply.head = engine.export_head(longest->head);
    if (!reply.head) {
        reply.refusal = Refusal{.reason = RefusalReason::kUnknownConversation,
                                .conversation = key.conversation_id,
                                .problem = " has no head in memory"};
    }
    return reply;
}

ConversationReply import_head(const ConversationCall& call, Engine& engine) {
    const reference::HeadInfo& info = call.head->info();
    const auto imported = import_file(*call.head, call.key, engine);
    if (!imported) return {.head_problem = imported.error().message};
    return {.json = {{"id", call.key.conversation_id},
                     {"object", "head"},
                     {"num_tokens", info.length()},
                     {"numerics", info.numerics},
                     {"digest", info.digest.hex()}}};
}

// What the conversation is after the change, when that is kept.
ConversationLedger::HeadDone reply_when_done(const std::string& id, const Ledger::Conversation& now, Done done) {
    const Json json = {{"id", id},
                       {"object", "conversation"},
                       {"head_id", nullptr},
                       {"num_turns", now.turns.size()},
                       {"num_tokens", now.committed.size()}};
    return [done = std::move(done), json](const std::string& problem, const std::string& head) {
        ConversationReply reply{.problem = problem, .json = json};
        reply.json["head_id"] = head;
        done(std::move(reply));
    };
}

std::optional<size_t> count_of(const std::optional<int64_t>& num_turns) {
    return num_turns ? std::optional(static_cast<size_t>(*num_turns)) : std::nullopt;
}

// The conversation goes with its last response that is shown. Until then a later response may need its tokens.
void remove_response(const ConversationCall& call, Engine& engine, ConversationLedger& ledger, Done done) {
    const auto answer = ledger.recorded(call.key, call.to, std::nullopt);
    if (!answer || *answer == nullptr || (*answer)->kept.empty()) return done({.refusal = unknown(call.key)});
    const Json deleted = {{"id", call.to}, {"object", "response"}, {"deleted", true}};
    const auto when_done = [done, deleted](const std::string& problem) { done({.problem = problem, .json = deleted}); };
    if (!ledger.is_last_shown(call.key, call.to)) return ledger.forget_answer(call.key, call.to, when_done);
    const auto removed = engine.remove(call.key);
    if (!removed) return done({.refusal = removed.error()});
    ledger.removed(call.key, when_done);
}

}  // namespace

std::optional<Refusal> parent_refusal(const ConversationLedger& ledger, const ConversationKey& key,
                                      const std::string& parent_head) {
    const auto view = ledger.view(key);
    const std::string head = view ? view->head : "";
    if (head == parent_head) return std::nullopt;
    return Refusal{.reason = RefusalReason::kParentMismatch,
                   .conversation = key.conversation_id,
                   .problem = fmt::format(" is at head '{}', the request expects '{}'", head, parent_head)};
}

void carry_out(const ConversationCall& call, Engine& engine, ConversationLedger& ledger, Done done) {
    using Kind = ConversationCall::Kind;
    if (call.kind == Kind::kShow) return done(show(call, engine, ledger));
    if (call.kind == Kind::kExportHead) return done(export_head(call.key, engine));
    if (call.kind == Kind::kImportHead) return done(import_head(call, engine));
    if (std::string problem = ledger.problem(); !problem.empty()) return done({.problem = std::move(problem)});
    if (call.parent_head) {
        if (auto refusal = parent_refusal(ledger, call.key, *call.parent_head))
            return done({.refusal = std::move(refusal)});
    }
    if (call.kind == Kind::kRemoveResponse) return remove_response(call, engine, ledger, std::move(done));
    if (call.kind == Kind::kFork) {
        const auto forked = engine.fork(call.key, call.to, count_of(call.num_turns));
        if (!forked) return done({.refusal = forked.error()});
        const Ledger::Conversation& fork = *engine.ledger().find({call.key.salt, call.to});
        return ledger.forked(call.key, call.to, fork, reply_when_done(call.to, fork, std::move(done)));
    }
    if (call.kind == Kind::kRewind) {
        const auto rewound = engine.rewind(call.key, count_of(call.num_turns).value());
        if (!rewound) return done({.refusal = rewound.error()});
        const Ledger::Conversation& now = *engine.ledger().find(call.key);
        return ledger.rewound(call.key, now, reply_when_done(call.key.conversation_id, now, std::move(done)));
    }
    CHECK(call.kind == Kind::kRemove, "call {}", static_cast<int>(call.kind));
    // Turns that never committed have left heads that can be deleted, too; the ledger never heard of them.
    const bool was_kept = ledger.view(call.key).has_value();
    const auto removed = engine.remove(call.key);
    if (!removed) return done({.refusal = removed.error()});
    const Json deleted = {{"id", call.key.conversation_id}, {"object", "conversation.deleted"}, {"deleted", true}};
    if (!was_kept) return done({.json = deleted});
    ledger.removed(call.key, [done = std::move(done), deleted](const std::string& problem) {
        done({.problem = problem, .json = deleted});
    });
}

}  // namespace verbatim::server
