#include "server/ledger/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "engine/base/check.h"

namespace verbatim::server {
namespace {

void keep_turns(ConversationRows& conversation, int64_t count) {
    CHECK(count >= 0 && count <= static_cast<int64_t>(conversation.turns.size()), "{} of {} turns", count,
          conversation.turns.size());
    conversation.turns.resize(static_cast<size_t>(count));
}

void fork(const Change& change, const ConversationRows& origin, ConversationRows& copy) {
    copy.version = change.version;
    copy.turns = origin.turns;
    keep_turns(copy, change.num_turns);
    for (const TurnPtr& turn : copy.turns) {
        if (turn->turn_id) copy.answers.insert_or_assign(*turn->turn_id, origin.answers.at(*turn->turn_id));
    }
}

void remove(ConversationRows& conversation) {
    CHECK(conversation.exists(), "a conversation that is not there is deleted");
    for (const auto& [turn_id, answer] : conversation.answers) conversation.deleted.insert(turn_id);
    conversation = {kNoVersion, {}, {}, std::move(conversation.deleted)};
}

bool is_an_end(FinishReason reason) {
    return reason == FinishReason::kLength || reason == FinishReason::kStopToken || reason == FinishReason::kStopString;
}

}  // namespace

ListedConversation listed_of(std::string id, Version version, const TurnRow& last, int64_t num_turns) {
    CHECK_GT(num_turns, 0);
    const ConversationRows at_end{version, {std::make_shared<const TurnRow>(last)}, {}, {}};
    return {std::move(id), head_name(at_end), num_turns, last.end};
}

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

int64_t bytes_of(const ConversationRows& conversation) {
    // A node of a map, with what the engine and the allocator add: 30 000 conversations of one turn took 2.7 kB each.
    constexpr size_t kNode = 288;
    constexpr size_t kToken = sizeof(TokenId);  // the turn's tokens lie here and in the engine
    size_t bytes = 4 * kNode;
    for (const TurnPtr& turn : conversation.turns)
        bytes += sizeof(TurnRow) + kNode + 2 * kToken * turn->tokens.size() + turn->messages.size();
    for (const auto& [turn_id, answer] : conversation.answers)
        bytes += sizeof(AnswerRow) + kNode + kToken * answer->output.size() + turn_id.size() + answer->kept.size();
    for (const std::string& turn_id : conversation.deleted) bytes += kNode + turn_id.size();
    return static_cast<int64_t>(bytes);
}

void apply_change(const Change& change, ConversationRows& conversation, ConversationRows* to) {
    switch (change.kind) {
        case Change::Kind::kNothing: return;
        case Change::Kind::kCommit:
            keep_turns(conversation, change.num_turns);
            if (change.rewritten) conversation.turns.push_back(change.rewritten);
            conversation.turns.push_back(change.turn);
            conversation.version = change.version;
            if (change.answer) conversation.answers.insert_or_assign(change.answer->turn_id, change.answer);
            return;
        case Change::Kind::kFork:
            CHECK(to != nullptr, "a fork to '{}' without a place", change.to);
            return fork(change, conversation, *to);
        case Change::Kind::kRewind:
            keep_turns(conversation, change.num_turns);
            conversation.version = change.version;
            return;
        case Change::Kind::kRemove: return remove(conversation);
        case Change::Kind::kForget:
            CHECK(change.answer && conversation.answers.contains(change.answer->turn_id),
                  "an answer that is not there");
            conversation.answers[change.answer->turn_id] = change.answer;
            return;
    }
    CHECK(false, "change {}", static_cast<int>(change.kind));
}

}  // namespace verbatim::server
