#include "tests/server/ledger/ledger_changes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "tests/server/ledger/ledger_places.h"

namespace verbatim::tests {

using namespace verbatim::server;

namespace {

// Some ids and salts that a database could stumble over.
const std::vector<std::optional<std::string>> kSalts = {std::nullopt, "", "-", std::string("\0\xff", 2)};
const std::vector<std::string> kIds = {"a", "b'; DROP TABLE", std::string("c\0d", 3), "\xff\xfe", "e"};

}  // namespace

int64_t LedgerContents::num_conversations() const {
    return std::ranges::count_if(conversations, [](const auto& one) { return one.second.exists(); });
}

size_t LedgerContents::num_deleted() const {
    size_t count = 0;
    for (const auto& [key, conversation] : conversations) count += conversation.deleted.size();
    return count;
}

Result<LedgerContents> read_all(LedgerStore& store, std::vector<ConversationKey> more) {
    for (const auto& salt : kSalts) {
        for (const std::string& id : kIds) more.push_back({{salt}, id});
    }
    ASSIGN_OR_RETURN(const int64_t num_conversations, store.open(kIdentity));
    LedgerContents contents;
    for (const ConversationKey& key : more) {
        ASSIGN_OR_RETURN(ConversationRows rows, store.load(key));
        if (rows.exists() || !rows.deleted.empty()) contents.conversations[key] = std::move(rows);
    }
    EXPECT_EQ(contents.num_conversations(), num_conversations);
    return contents;
}

ConversationKey RandomChanges::any_key() {
    const auto& salt = kSalts[static_cast<size_t>(below(static_cast<int64_t>(kSalts.size())))];
    return {{salt}, kIds[static_cast<size_t>(below(static_cast<int64_t>(kIds.size())))]};
}

Change RandomChanges::commit(const ConversationKey& key) {
    const auto found = contents_.conversations.find(key);
    const ConversationRows now = found == contents_.conversations.end() ? ConversationRows() : found->second;
    Change change{.kind = Change::Kind::kCommit, .key = key};
    const auto num_turns = static_cast<int64_t>(now.turns.size());
    change.num_turns = below(4) == 0 ? below(num_turns + 1) : num_turns;
    change.version = Version{index(now.version) + 1};
    TurnRow before = change.num_turns == 0 ? TurnRow() : *now.turns[static_cast<size_t>(change.num_turns) - 1];
    if (change.num_turns + 1 == num_turns) {
        TurnRow rewritten = *now.turns.back();
        rewritten.end = rewritten.prompt_end + below(5);
        rewritten.num_text_tokens = rewritten.end - rewritten.prompt_end;
        rewritten.num_text_bytes = -1;
        rewritten.tokens.resize(static_cast<size_t>(rewritten.end - before.end), 7);
        rewritten.chain = chain_after(before.chain, rewritten.tokens);
        change.rewritten = std::make_shared<const TurnRow>(rewritten);
        before = rewritten;
    }
    TurnRow turn;
    turn.prompt_end = before.end + 1 + below(30);
    turn.end = turn.prompt_end + below(9);
    turn.finish = static_cast<FinishReason>(below(3));
    turn.num_text_tokens = below(turn.end - turn.prompt_end + 1);
    turn.num_text_bytes = below(50) - 1;
    turn.version = change.version;
    for (int64_t i = before.end; i < turn.end; ++i) turn.tokens.push_back(static_cast<TokenId>(below(2048)));
    turn.chain = chain_after(before.chain, turn.tokens);
    turn.num_old_messages = below(5);
    turn.num_messages = below(9);
    turn.messages = below(3) == 0 ? "" : R"([{"role": "user", "content": "\u0000 ä"}])";
    if (below(3) > 0) turn.turn_id = fmt::format("turn {}", next_turn_++);
    change.turn = std::make_shared<const TurnRow>(turn);
    if (!turn.turn_id) return change;
    AnswerRow answer{*turn.turn_id,
                     {random_(), random_()},
                     turn.tokens,
                     turn.finish,
                     below(99),
                     below(99),
                     below(99),
                     "7-head",
                     "cmpl-1",
                     below(99),
                     below(2) == 0 ? "" : R"({"a": "\u0000 ä"})"};
    change.answer = std::make_shared<const AnswerRow>(std::move(answer));
    return change;
}

// An answer of the conversation; where it has none: nothing.
Change RandomChanges::forget(const ConversationKey& key, const ConversationRows& now) {
    if (now.answers.empty()) return {};
    AnswerRow nothing = *std::next(now.answers.begin(), below(std::ssize(now.answers)))->second;
    nothing.output.clear();
    nothing.kept.clear();
    Change change{.kind = Change::Kind::kForget, .key = key};
    change.answer = std::make_shared<const AnswerRow>(std::move(nothing));
    return change;
}

Change RandomChanges::draw() {
    const ConversationKey key = any_key();
    const auto found = contents_.conversations.find(key);
    if (found == contents_.conversations.end() || !found->second.exists()) return commit(key);
    const auto num_turns = static_cast<int64_t>(found->second.turns.size());
    const Version next{index(found->second.version) + 1};
    const ConversationKey to{key.salt, any_key().conversation_id};
    switch (below(12)) {
        case 0: return {.kind = Change::Kind::kRemove, .key = key};
        case 1: return {.kind = Change::Kind::kRewind, .key = key, .version = next, .num_turns = 1 + below(num_turns)};
        case 2: return {};
        case 3:
        case 4:
            if (contents_.conversations.contains(to) && contents_.conversations.at(to).exists()) break;
            return {.kind = Change::Kind::kFork,
                    .key = key,
                    .version = next,
                    .num_turns = 1 + below(num_turns),
                    .to = to.conversation_id};
        case 5: return forget(key, found->second);
        default: break;
    }
    return commit(key);
}

std::vector<Change> RandomChanges::next(int count) {
    std::vector<Change> changes;
    for (int i = 0; i < count; ++i) {
        Change& change = changes.emplace_back(draw());
        ++counts_[change.kind];
        if (change.kind == Change::Kind::kNothing) continue;
        const bool is_fork = change.kind == Change::Kind::kFork;
        const int64_t num_before = contents_.num_conversations();
        ConversationRows& of = contents_.conversations[change.key];
        apply_change(change, of, is_fork ? &contents_.conversations[{change.key.salt, change.to}] : nullptr);
        change.num_new_conversations = contents_.num_conversations() - num_before;
        if (!of.exists() && of.deleted.empty()) contents_.conversations.erase(change.key);
    }
    return changes;
}

Digest digest_of(const LedgerContents& contents) {
    Digester digester;
    for (const auto& [key, conversation] : contents.conversations) {
        digester.add(key.salt.value.value_or("no salt"));
        digester.add(key.conversation_id);
        digester.add(conversation.version);
        for (const TurnPtr& turn : conversation.turns) {
            digester.add(turn->chain);
            digester.add(turn->version);
            digester.add(turn->messages);
        }
        for (const auto& [turn_id, answer] : conversation.answers) {
            digester.add(turn_id);
            digester.add(answer->request);
        }
    }
    digester.add(contents.num_deleted());
    return digester.digest();
}

void expect_equal(const LedgerContents& got, const LedgerContents& wanted) {
    ASSERT_EQ(got.conversations.size(), wanted.conversations.size());
    for (const auto& [key, conversation] : wanted.conversations) {
        ASSERT_TRUE(got.conversations.contains(key)) << key.conversation_id;
        const ConversationRows& other = got.conversations.at(key);
        EXPECT_EQ(other.version, conversation.version);
        ASSERT_EQ(other.turns.size(), conversation.turns.size());
        for (size_t i = 0; i < conversation.turns.size(); ++i) EXPECT_EQ(*other.turns[i], *conversation.turns[i]);
        ASSERT_EQ(other.answers.size(), conversation.answers.size());
        EXPECT_EQ(other.deleted, conversation.deleted);
        for (const auto& [turn_id, answer] : conversation.answers) {
            ASSERT_TRUE(other.answers.contains(turn_id)) << turn_id;
            EXPECT_EQ(*other.answers.at(turn_id), *answer);
        }
    }
}

}  // namespace verbatim::tests
