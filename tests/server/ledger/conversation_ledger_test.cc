// What the ledger keeps of turns and their answers, without a store: the rows that are in memory.
#include "server/ledger/conversation_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/server/ledger/committed_turns.h"

namespace verbatim::tests {
namespace {

using namespace verbatim::server;
using testing::ElementsAre;
using testing::IsEmpty;

ConversationKey named(const std::string& id) { return {CacheSalt{}, id}; }

Digest digest_from(const std::string& text) {
    Digester digester;
    for (const char letter : text) digester.add(static_cast<uint64_t>(letter));
    return digester.digest();
}

class ConversationLedgers : public testing::Test {
protected:
    static TurnNotes claimed(const std::string& turn_id) {
        TurnNotes notes;
        notes.claim = TurnClaim{turn_id, digest_from(turn_id), "answer of " + turn_id, 17, "shown"};
        return notes;
    }
    void commit(const std::string& id, const TurnNotes& notes = {}) {
        ledger_->committed(named(id), turns_.next(id), notes, done());
    }
    void remove(const std::string& id) {
        ledger_->removed(named(id), [](const std::string& problem) { EXPECT_EQ(problem, ""); });
        turns_.erase(id);
    }
    ConversationLedger::HeadDone done() {
        return [this](const std::string& problem, const std::string& head) {
            EXPECT_EQ(problem, "");
            heads_.push_back(head);
        };
    }
    TurnPtr last_turn(const std::string& id) const { return ledger_->view(named(id))->turns.back(); }
    AnswerRow answer(const std::string& id, const std::string& turn_id) const {
        return **ledger_->recorded(named(id), turn_id, std::nullopt);
    }
    bool is_deleted(const std::string& id, const std::string& turn_id) const {
        const auto recorded = ledger_->recorded(named(id), turn_id, std::nullopt);
        return !recorded && recorded.error().reason == RefusalReason::kTurnDeleted;
    }
    void begin(LedgerMemory memory) {
        ledger_ = std::make_unique<ConversationLedger>(nullptr, LedgerWriterConfig{}, memory);
    }

    CommittedTurns turns_;
    std::unique_ptr<ConversationLedger> ledger_ = std::make_unique<ConversationLedger>();
    std::vector<std::string> heads_;
};

TEST_F(ConversationLedgers, AnAnswerIsKeptWithAllThatWasSaidOfIt) {
    commit("a");
    TurnNotes notes = claimed("t");
    notes.stop = StopPlace{.num_text_tokens = 2, .num_text_bytes = 9};
    notes.num_cached_tokens = 4;
    commit("a", notes);
    const TurnRow turn = *last_turn("a");
    EXPECT_EQ(turn.turn_id, "t");
    EXPECT_EQ(turn.num_text_tokens, 2);
    EXPECT_EQ(turn.num_text_bytes, 9);
    EXPECT_THAT(turn.tokens, ElementsAre(105, 106, 107, 108, 109));
    EXPECT_EQ(last_turn("a")->chain, chain_after(ledger_->view(named("a"))->turns.front()->chain, turn.tokens));
    EXPECT_EQ(ledger_->view(named("a"))->turns.front()->num_text_bytes, -1);
    EXPECT_EQ(answer("a", "t"), (AnswerRow{.turn_id = "t",
                                           .request = digest_from("t"),
                                           .output = {107, 108},
                                           .finish = turn.finish,
                                           .num_prompt_tokens = 7,
                                           .num_cached_tokens = 4,
                                           .num_output_tokens = 2,
                                           .head = ledger_->view(named("a"))->head,
                                           .answer_id = "answer of t",
                                           .created = 17,
                                           .kept = "shown"}));
    std::vector<TokenId> all(10);
    std::iota(all.begin(), all.end(), 100);
    EXPECT_EQ(ledger_->view(named("a"))->tokens(), all);
}

TEST_F(ConversationLedgers, AnIdIsOfOneRequest) {
    commit("a", claimed("t"));
    EXPECT_TRUE(ledger_->recorded(named("a"), "t", digest_from("t")));
    const auto other = ledger_->recorded(named("a"), "t", digest_from("u"));
    ASSERT_FALSE(other);
    EXPECT_EQ(other.error().reason, RefusalReason::kTurnMismatch);
    EXPECT_EQ(*ledger_->recorded(named("a"), "u", digest_from("u")), nullptr);
}

// A turn keeps the messages behind those that are equal, as long as the conversation is the one that they were compared
// with, and counts the answer as one unless it goes on from the last of them.
TEST_F(ConversationLedgers, MessagesAreKeptBehindThoseThatAreEqual) {
    const auto notes = [](Version base, int64_t num_equal, bool continues_last) {
        TurnNotes of_turn;
        of_turn.messages = {base, num_equal, {"1", "2", "3"}, continues_last};
        return of_turn;
    };
    const auto expect_turn = [&](int64_t num_old, const std::string& messages, int64_t num) {
        EXPECT_EQ(last_turn("a")->num_old_messages, num_old);
        EXPECT_EQ(last_turn("a")->messages, messages);
        EXPECT_EQ(last_turn("a")->num_messages, num);
    };
    commit("a", notes(kNoVersion, 0, true));
    expect_turn(0, "[1,2,3]", 3);
    commit("a", notes(turns_.version(), 1, false));
    expect_turn(1, "[2,3]", 4);
    commit("a", notes(kNoVersion, 1, false));
    expect_turn(0, "[1,2,3]", 4);
    commit("a");
    expect_turn(0, "", 0);
    commit("a", notes(turns_.version(), 3, false));  // those before are no messages
    expect_turn(0, "[1,2,3]", 4);
    commit("b", notes(kNoVersion, 3, false));
    EXPECT_EQ(last_turn("b")->num_old_messages, 0);
}

// The engine drops a turn whose answer the next prompt has in other tokens; here it stays, in these.
TEST_F(ConversationLedgers, ATurnInOtherTokensStaysATurn) {
    TurnNotes stopped = claimed("t");
    stopped.stop = StopPlace{.num_text_tokens = 3, .num_text_bytes = 5};
    stopped.messages = {kNoVersion, 0, {"1"}};
    const auto commit_behind = [&](const std::string& id, Version base) {
        commit(id);
        commit(id, stopped);
        Ledger::Conversation now = turns_.next(id);
        now.turns.erase(now.turns.begin() + 1);  // tokens 5 to 10, of them 7 to 10 the answer
        TurnNotes notes;
        notes.rewritten = RewrittenAnswer{base == kNoVersion ? Version{index(now.version) - 1} : base, 9};
        return ledger_->committed(named(id), now, notes, done());
    };
    EXPECT_TRUE(commit_behind("a", kNoVersion));
    const std::vector<TurnPtr> turns = ledger_->view(named("a"))->turns;
    ASSERT_EQ(turns.size(), 3u);
    EXPECT_EQ(turns[1]->turn_id, "t");
    EXPECT_EQ(turns[1]->messages, "[1]");
    EXPECT_EQ(turns[1]->end, 9);
    EXPECT_EQ(turns[1]->num_text_tokens, 2);
    EXPECT_EQ(turns[1]->num_text_bytes, -1);
    EXPECT_THAT(turns[1]->tokens, ElementsAre(105, 106, 107, 108));
    EXPECT_THAT(turns[2]->tokens, ElementsAre(109, 110, 111, 112, 113, 114));
    EXPECT_EQ(turns[2]->chain, chain_after(turns[1]->chain, turns[2]->tokens));
    EXPECT_EQ(answer("a", "t").output.size(), 3u) << "as it was answered";
    // Compared with an older version: it may have been another turn.
    EXPECT_FALSE(commit_behind("b", Version{1}));
    EXPECT_EQ(ledger_->view(named("b"))->turns.size(), 2u);
}

TEST_F(ConversationLedgers, CommitsAndConversationsAreCounted) {
    const auto expect_counts = [&](int64_t num_conversations, int64_t num_commits) {
        EXPECT_EQ(ledger_->num_conversations(), num_conversations);
        EXPECT_EQ(ledger_->num_commits(), num_commits);
    };
    expect_counts(0, 0);
    commit("a");
    commit("a");
    expect_counts(1, 2);
    ledger_->forked(named("a"), "b", turns_.of("a"), done());
    expect_counts(2, 2);
    turns_.of("a").turns.pop_back();
    ledger_->rewound(named("a"), turns_.of("a"), done());
    expect_counts(2, 2);
    EXPECT_EQ(ledger_->view(named("a"))->turns.size(), 1u);
    EXPECT_EQ(ledger_->view(named("b"))->turns.size(), 2u);
    EXPECT_EQ(heads_.back(), ledger_->view(named("a"))->head);
    commit("c");
    expect_counts(3, 3);
    remove("a");
    expect_counts(2, 3);
    EXPECT_FALSE(ledger_->view(named("a")));
    EXPECT_EQ(ledger_->problem() + ledger_->where(), "");
    EXPECT_EQ(ledger_->close(), 0u);
}

TEST_F(ConversationLedgers, AnAnswerThatIsForgottenHasNothingToShow) {
    commit("a", claimed("t"));
    commit("a", claimed("u"));
    EXPECT_FALSE(ledger_->is_last_shown(named("a"), "t"));
    std::optional<std::string> said;
    ledger_->forget_answer(named("a"), "u", [&](const std::string& problem) { said = problem; });
    EXPECT_EQ(said, "");
    EXPECT_THAT(answer("a", "u").output, IsEmpty());
    EXPECT_EQ(answer("a", "u").kept, "");
    EXPECT_EQ(answer("a", "u").num_output_tokens, 3);
    EXPECT_TRUE(ledger_->is_last_shown(named("a"), "t"));
    EXPECT_FALSE(ledger_->is_last_shown(named("a"), "u")) << "the other one is shown";
    commit("a");
    EXPECT_FALSE(ledger_->is_last_shown(named("a"), "t")) << "a turn without an id needs the conversation";
}

// Of all that was deleted, memory keeps the newest ids, and the room of no other.
TEST_F(ConversationLedgers, DeletedTurnsTakeTheRoomOfTheirIds) {
    begin({.max_deleted_turns = 2});
    const auto expect_room = [&](const std::vector<ConversationRows>& conversations) {
        int64_t num_bytes = 0;
        for (const ConversationRows& rows : conversations) num_bytes += bytes_of(rows);
        EXPECT_EQ(ledger_->loaded().num_bytes, num_bytes);
        EXPECT_EQ(ledger_->loaded().num_conversations, std::ssize(conversations));
    };
    const auto deleted = [](const std::set<std::string>& ids) { return ConversationRows{kNoVersion, {}, {}, ids}; };
    commit("a", claimed("t1"));
    remove("a");
    expect_room({deleted({"t1"})});
    commit("a", claimed("t2"));
    remove("a");
    expect_room({deleted({"t1", "t2"})});
    EXPECT_TRUE(is_deleted("a", "t1"));
    commit("b", claimed("a longer id"));
    remove("b");
    expect_room({deleted({"t2"}), deleted({"a longer id"})});
    EXPECT_FALSE(is_deleted("a", "t1"));
    EXPECT_TRUE(is_deleted("a", "t2"));
    for (const char* id : {"t3", "t4", "t5"}) commit("c", claimed(id));
    remove("c");
    expect_room({deleted({"t3", "t4", "t5"})});
    EXPECT_FALSE(is_deleted("b", "a longer id"));
    commit("d");
    remove("d");
    expect_room({deleted({"t4", "t5"})});
    commit("e", claimed("t6"));
    remove("e");
    expect_room({deleted({"t5"}), deleted({"t6"})});
}

TEST_F(ConversationLedgers, AConversationThatGoesOnKeepsItsRoomWhenItsDeletedTurnsAreForgotten) {
    begin({.max_deleted_turns = 1});
    commit("a", claimed("t1"));
    remove("a");
    commit("a", claimed("t2"));
    commit("b", claimed("t3"));
    remove("b");
    EXPECT_FALSE(is_deleted("a", "t1"));
    EXPECT_EQ(answer("a", "t2").turn_id, "t2");
    EXPECT_EQ(ledger_->num_conversations(), 1);
    EXPECT_EQ(ledger_->loaded().num_conversations, 2);
}

TEST_F(ConversationLedgers, AConversationThatIsNotThereIsReady) {
    EXPECT_NE(ledger_->pin_if_ready(named("a")), nullptr);
    PinPtr pin;
    ledger_->make_ready(named("a"), [&](const std::string&, PinPtr ready) { pin = std::move(ready); });
    EXPECT_NE(pin, nullptr);
}

TEST_F(ConversationLedgers, AreListedWithTheirLastTurns) {
    commit("b");
    commit("a");
    commit("a");
    std::vector<ListedConversation> listed;
    ledger_->list({.limit = 5}, [&](const auto& list) { listed = *list; });
    ASSERT_EQ(listed.size(), 2u);
    EXPECT_EQ(listed[0], (ListedConversation{"a", ledger_->view(named("a"))->head, 2, 10}));
    EXPECT_EQ(listed[1], (ListedConversation{"b", ledger_->view(named("b"))->head, 1, 5}));
}

}  // namespace
}  // namespace verbatim::tests
