#include "server/ledger/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "engine/base/check.h"

namespace verbatim::server {
namespace {

void keep_turns(ConversationRows& conversation, int64_t count) {
    CHECK(count >= 0 && count <= static_cast<int64_t>(conversation.turns.size()), "{} of {} turns", count,
          conversation.turns.size());
    conversation.turns.resize(static_cast<size_t>(count));
}

void fork(const Change& change, LedgerContents& contents) {
    const ConversationRows& origin = contents.conversations.at(change.key);
    ConversationRows copy{change.version, origin.turns, {}};
    keep_turns(copy, change.num_turns);
    for (const TurnPtr& turn : copy.turns) {
        if (turn->turn_id) copy.answers.insert_or_assign(*turn->turn_id, origin.answers.at(*turn->turn_id));
    }
    contents.conversations.insert_or_assign({change.key.salt, change.to}, std::move(copy));
}

void remove(const Change& change, LedgerContents& contents) {
    const auto found = contents.conversations.find(change.key);
    CHECK(found != contents.conversations.end(), "'{}' is not there", change.key.conversation_id);
    const int64_t deletion = contents.deleted.last_deletion() + 1;
    for (const auto& [turn_id, answer] : found->second.answers) contents.deleted.add(change.key, turn_id, deletion);
    contents.conversations.erase(found);
}

bool is_an_end(FinishReason reason) {
    return reason == FinishReason::kLength || reason == FinishReason::kStopToken || reason == FinishReason::kStopString;
}

}  // namespace

std::string head_name(const ConversationRows& conversation) {
    if (conversation.turns.empty()) return "";
    return fmt::format("{}-{:016x}", index(conversation.version), conversation.turns.back()->chain.high);
}

Digest chain_after(const Digest& before, const std::vector<TokenId>& tokens) {
    Digester digester;
    digester.add(before);
    digester.add_all(std::span(tokens));
    return digester.digest();
}

// Conversations are forgotten whole, as the store does it: it numbers deletions, not turn ids.
void DeletedTurns::add(const ConversationKey& key, const std::string& turn_id, int64_t deletion) {
    CHECK_GE(deletion, last_deletion());
    if (all_.emplace(key, turn_id).second) in_order_.push_back({{key, turn_id}, deletion});
    while (in_order_.size() > kMaxDeletedTurns && in_order_.front().deletion < last_deletion()) {
        const int64_t oldest = in_order_.front().deletion;
        for (; in_order_.front().deletion == oldest; in_order_.pop_front()) all_.erase(in_order_.front().id);
    }
    CHECK_EQ(all_.size(), in_order_.size());
}

bool DeletedTurns::contains(const ConversationKey& key, const std::string& turn_id) const {
    return all_.contains({key, turn_id});
}

std::string problem_of(const ConversationRows& conversation, int32_t vocab_size) {
    if (conversation.turns.empty()) return "it has no turn";
    int64_t end = 0;
    Version version = kNoVersion;
    Digest chain;
    for (size_t i = 0; i < conversation.turns.size(); ++i) {
        const TurnRow& turn = *conversation.turns[i];
        const auto wrong = [&](const char* what) { return fmt::format("turn {}: {}", i + 1, what); };
        if (turn.prompt_end <= end || turn.end < turn.prompt_end) return wrong("its ends are out of order");
        if (turn.end - end != static_cast<int64_t>(turn.tokens.size())) return wrong("tokens are missing");
        if (turn.num_text_tokens < 0 || turn.num_text_tokens > turn.end - turn.prompt_end)
            return wrong("more tokens are text than there are");
        const auto is_token = [&](TokenId token) { return token >= 0 && token < vocab_size; };
        if (!std::ranges::all_of(turn.tokens, is_token)) return wrong("a token is none of the model's");
        if (turn.version <= version) return wrong("its version is out of order");
        if (!is_an_end(turn.finish)) return wrong("no turn ends so");
        if (turn.turn_id && !conversation.answers.contains(*turn.turn_id)) return wrong("its answer is missing");
        chain = chain_after(chain, turn.tokens);
        if (turn.chain != chain) return wrong("its tokens are not those that were written");
        end = turn.end;
        version = turn.version;
    }
    return conversation.version < version ? "its version is older than its turns" : "";
}

void apply_change(const Change& change, LedgerContents& contents) {
    switch (change.kind) {
        case Change::Kind::kNothing: return;
        case Change::Kind::kCommit: {
            ConversationRows& conversation = contents.conversations[change.key];
            keep_turns(conversation, change.num_turns);
            conversation.turns.push_back(change.turn);
            conversation.version = change.version;
            if (change.answer) conversation.answers.insert_or_assign(change.answer->turn_id, change.answer);
            return;
        }
        case Change::Kind::kFork: return fork(change, contents);
        case Change::Kind::kRewind: {
            ConversationRows& conversation = contents.conversations.at(change.key);
            keep_turns(conversation, change.num_turns);
            conversation.version = change.version;
            return;
        }
        case Change::Kind::kRemove: return remove(change, contents);
    }
    CHECK(false, "change {}", static_cast<int>(change.kind));
}

}  // namespace verbatim::server
