// The ledger alone: leases, turns and names; the whole of it, compared with a model, is tests/engine/model.
#include "engine/ledger/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace verbatim {
namespace {

using ::testing::ElementsAre;

struct Scene {
    explicit Scene(std::optional<TokenId> end_of_turn = {}) : ledger({.token_template = {end_of_turn}}) {}

    ChatRequest request(InputKind input, const std::vector<std::vector<TokenId>>& messages) {
        ChatRequest request;
        request.conversation = key;
        request.input = input;
        for (const auto& tokens : messages) request.messages.push_back({store.store(tokens), true});
        return request;
    }
    OrRefusal<TurnStart> begin(InputKind input, const std::vector<std::vector<TokenId>>& messages) {
        return ledger.begin(request(input, messages), RequestId{next_request++}, store);
    }
    bool commit(const TurnStart& start, const std::vector<TokenId>& output, const ChatRequest& request = {}) {
        Turn turn;
        turn.num_text_tokens = static_cast<int64_t>(output.size());
        const bool committed = ledger.commit(start, request, store.store(output), turn).has_value();
        ledger.verify();
        return committed;
    }
    // A turn under an id, committed; false when it was refused, answered or could not commit.
    bool turn(const std::string& id, InputKind input, const std::vector<std::vector<TokenId>>& messages,
              const std::vector<TokenId>& output) {
        ChatRequest asked = request(input, messages);
        asked.turn_id = id;
        const auto recorded = ledger.recorded(asked);
        if (!recorded || *recorded) return false;
        const auto start = ledger.begin(asked, RequestId{next_request++}, store);
        return start && commit(*start, output, asked);
    }
    // What a late duplicate of a turn gets: its recorded text, or why it is refused.
    std::string duplicate(const std::string& id, InputKind input, const std::vector<std::vector<TokenId>>& messages) {
        ChatRequest asked = request(input, messages);
        asked.turn_id = id;
        const auto recorded = ledger.recorded(asked);
        if (!recorded) return name(recorded.error().reason);
        return *recorded ? fmt::format("{}", fmt::join((*recorded)->output.to_vector(), " ")) : "unknown";
    }
    // History {1 2} {3 4}, answered by 5 6.
    void first_turn() { ASSERT_TRUE(commit(*begin(InputKind::kHistory, {{1, 2}, {3, 4}}), {5, 6})); }

    TokenStore store{100};
    Ledger ledger;
    int64_t next_request = 0;
    ConversationKey key{{}, "a"};
};

TEST(Ledger, AnUnknownHistoryStartsAConversationWithNothingCommitted) {
    Scene scene;
    const auto start = scene.begin(InputKind::kHistory, {{1, 2}, {3, 4}});
    ASSERT_TRUE(start);
    EXPECT_THAT(start->prompt.to_vector(), ElementsAre(1, 2, 3, 4));
    EXPECT_THAT(start->checkpoints, ElementsAre(2, 4));
    EXPECT_EQ(start->num_committed, 0);
    EXPECT_EQ(start->seam, std::nullopt);
}

TEST(Ledger, ASuffixFollowsWhatIsCommittedWithTheSeamInside) {
    Scene scene;
    scene.first_turn();
    const auto start = scene.begin(InputKind::kSuffix, {{7}});
    EXPECT_THAT(start->prompt.to_vector(), ElementsAre(1, 2, 3, 4, 5, 6, 7));
    EXPECT_EQ(start->num_committed, 6);
    EXPECT_EQ(start->seam, 5);
    EXPECT_EQ(start->num_kept_turns, 1u);
}

TEST(Ledger, RegenerateHasThePromptOfTheLastTurnAndReplacesIt) {
    Scene scene;
    scene.first_turn();
    const auto start = scene.begin(InputKind::kRegenerate, {});
    EXPECT_THAT(start->prompt.to_vector(), ElementsAre(1, 2, 3, 4));
    EXPECT_THAT(start->checkpoints, ElementsAre(2, 4));
    EXPECT_EQ(start->seam, std::nullopt);
    EXPECT_EQ(start->num_kept_turns, 0u);
    ASSERT_TRUE(scene.commit(*start, {9}));
    EXPECT_THAT(scene.ledger.find(scene.key)->committed.to_vector(), ElementsAre(1, 2, 3, 4, 9));
}

TEST(Ledger, AnEditKeepsTheTurnsBeforeIt) {
    Scene scene;
    scene.first_turn();
    ASSERT_TRUE(scene.commit(*scene.begin(InputKind::kSuffix, {{7}}), {8}));
    const auto start = scene.begin(InputKind::kHistory, {{1, 2, 3, 4, 5, 6, 9}});
    EXPECT_EQ(start->num_committed, 6);
    EXPECT_EQ(start->num_kept_turns, 1u);
    ASSERT_TRUE(scene.commit(*start, {10}));
    const auto* conversation = scene.ledger.find(scene.key);
    EXPECT_THAT(conversation->committed.to_vector(), ElementsAre(1, 2, 3, 4, 5, 6, 9, 10));
    EXPECT_EQ(conversation->turns.size(), 2u);
    EXPECT_THAT(conversation->turns.back().message_ends, ElementsAre(7));
}

TEST(Ledger, TheTemplateSuppliesTheMissingEndOfTurn) {
    Scene scene(TokenId{42});
    scene.first_turn();
    const auto start = scene.begin(InputKind::kSuffix, {{7}});
    EXPECT_THAT(start->prompt.to_vector(), ElementsAre(1, 2, 3, 4, 5, 6, 42, 7));
    ASSERT_TRUE(scene.commit(*start, {42}));
    EXPECT_EQ(scene.begin(InputKind::kSuffix, {{7}})->prompt.size(), 10);
}

TEST(Ledger, OneLeaseAtATimeAndEveryLeaseHasANewGeneration) {
    Scene scene;
    const auto first = scene.begin(InputKind::kHistory, {{1}});
    EXPECT_EQ(scene.begin(InputKind::kHistory, {{1}}).error().reason, RefusalReason::kBusy);
    EXPECT_EQ(scene.ledger.num_leases(), 1u);
    scene.ledger.discard(first->lease);
    EXPECT_EQ(scene.ledger.num_conversations(), 0u);
    const auto second = scene.begin(InputKind::kHistory, {{1}});
    EXPECT_GT(second->lease.generation, first->lease.generation);
    EXPECT_FALSE(scene.ledger.is_live(first->lease));
    EXPECT_TRUE(scene.ledger.is_live(second->lease));
}

TEST(Ledger, ALeaseOfAnOlderGenerationNeitherCommitsNorGivesAwayTheNewOne) {
    Scene scene;
    scene.first_turn();
    const auto lost = scene.begin(InputKind::kSuffix, {{7}});
    ASSERT_TRUE(scene.ledger.revoke(scene.key));
    const auto heir = scene.begin(InputKind::kSuffix, {{8}});
    EXPECT_FALSE(scene.commit(*lost, {9}));
    scene.ledger.discard(lost->lease);
    EXPECT_TRUE(scene.ledger.is_live(heir->lease));
    EXPECT_TRUE(scene.commit(*heir, {9}));
    EXPECT_THAT(scene.ledger.find(scene.key)->committed.to_vector(), ElementsAre(1, 2, 3, 4, 5, 6, 8, 9));
}

TEST(Ledger, ARecordedTurnHasTheTextWithoutItsStopString) {
    Scene scene;
    ChatRequest request = scene.request(InputKind::kHistory, {{1, 2}});
    request.turn_id = "t";
    Turn turn;
    turn.num_text_tokens = 1;
    turn.finish = FinishReason::kStopString;
    const auto start = scene.ledger.begin(request, RequestId{0}, scene.store);
    const auto version = scene.ledger.commit(*start, request, scene.store.store(std::vector<TokenId>{5, 6}), turn);
    const auto recorded = scene.ledger.recorded(request);
    ASSERT_TRUE(recorded && *recorded);
    EXPECT_THAT((*recorded)->output.to_vector(), ElementsAre(5));
    EXPECT_EQ((*recorded)->finish, FinishReason::kStopString);
    EXPECT_EQ((*recorded)->version, version);
}

// At most once, whatever has become of the turn: each of these was computed a second time, and committed twice.
TEST(Ledger, ALateDuplicateIsNotComputedAgainAfterARegenerate) {
    Scene scene;
    scene.first_turn();
    ASSERT_TRUE(scene.turn("t1", InputKind::kSuffix, {{7}}, {8}));
    ASSERT_TRUE(scene.turn("t2", InputKind::kRegenerate, {}, {9}));
    EXPECT_EQ(scene.duplicate("t1", InputKind::kSuffix, {{7}}), "8");
    EXPECT_EQ(scene.duplicate("t2", InputKind::kRegenerate, {}), "9");
}

TEST(Ledger, ALateDuplicateIsNotComputedAgainAfterARewind) {
    Scene scene;
    scene.first_turn();
    ASSERT_TRUE(scene.turn("t1", InputKind::kSuffix, {{7}}, {8}));
    ASSERT_TRUE(scene.ledger.rewind(scene.key, 1));
    EXPECT_EQ(scene.duplicate("t1", InputKind::kSuffix, {{7}}), "8");
}

TEST(Ledger, ALateDuplicateIsNotComputedAgainAfterAHistoryThatDropsItsTurn) {
    Scene scene;
    ASSERT_TRUE(scene.turn("t1", InputKind::kHistory, {{1, 2}}, {3}));
    ASSERT_TRUE(scene.turn("t2", InputKind::kHistory, {{4, 5}}, {6}));
    EXPECT_EQ(scene.ledger.find(scene.key)->turns.size(), 1u);
    EXPECT_EQ(scene.duplicate("t1", InputKind::kHistory, {{1, 2}}), "3");
}

TEST(Ledger, ALateDuplicateOfADeletedTurnIsRefusedAndSaysSo) {
    Scene scene;
    ASSERT_TRUE(scene.turn("t1", InputKind::kHistory, {{1, 2}}, {3}));
    ASSERT_TRUE(scene.ledger.remove(scene.key));
    EXPECT_EQ(scene.duplicate("t1", InputKind::kHistory, {{1, 2}}), "turn_deleted");
    EXPECT_EQ(scene.duplicate("t2", InputKind::kHistory, {{1, 2}}), "unknown");
    ASSERT_TRUE(scene.turn("t2", InputKind::kHistory, {{1, 2}}, {4}));  // the conversation may begin anew
    EXPECT_EQ(scene.duplicate("t1", InputKind::kHistory, {{1, 2}}), "turn_deleted");
}

TEST(Ledger, DeletedTurnsAreRememberedInBoundedSpaceTheNewestOnes) {
    Scene scene;
    Ledger small({.keep_deleted_turn_ids = 2});
    std::swap(scene.ledger, small);
    for (const char* id : {"t1", "t2", "t3"}) {
        ASSERT_TRUE(scene.turn(id, InputKind::kHistory, {{1, 2}}, {3}));
        ASSERT_TRUE(scene.ledger.remove(scene.key));
    }
    EXPECT_EQ(scene.duplicate("t1", InputKind::kHistory, {{1, 2}}), "unknown");
    EXPECT_EQ(scene.duplicate("t2", InputKind::kHistory, {{1, 2}}), "turn_deleted");
    EXPECT_EQ(scene.duplicate("t3", InputKind::kHistory, {{1, 2}}), "turn_deleted");
}

TEST(Ledger, OfTheConversationThatWasDeletedLastEveryTurnIsRemembered) {
    Scene scene;
    Ledger small({.keep_deleted_turn_ids = 2});
    std::swap(scene.ledger, small);
    ASSERT_TRUE(scene.turn("t1", InputKind::kHistory, {{1, 2}}, {3}));
    for (const char* id : {"t2", "t3", "t4"}) ASSERT_TRUE(scene.turn(id, InputKind::kSuffix, {{1, 2}}, {3}));
    ASSERT_TRUE(scene.ledger.remove(scene.key));
    for (const char* id : {"t1", "t2", "t3", "t4"})
        EXPECT_EQ(scene.duplicate(id, InputKind::kHistory, {{1, 2}}), "turn_deleted") << id;
}

TEST(Ledger, ATurnIdStandsForOneRequest) {
    Scene scene;
    ASSERT_TRUE(scene.turn("t1", InputKind::kHistory, {{1, 2}}, {3}));
    EXPECT_EQ(scene.duplicate("t1", InputKind::kHistory, {{1}, {2}}), "turn_mismatch");
    EXPECT_EQ(scene.duplicate("t1", InputKind::kHistory, {{1, 5}}), "turn_mismatch");
    EXPECT_EQ(scene.duplicate("t1", InputKind::kSuffix, {{1, 2}}), "turn_mismatch");
    ChatRequest again = scene.request(InputKind::kHistory, {{1, 2}});
    again.turn_id = "t1";
    again.seed = 5;  // as a turn that is sent again after a failure
    EXPECT_TRUE(scene.ledger.recorded(again).has_value());
    EXPECT_EQ(scene.duplicate("t1", InputKind::kHistory, {{1, 2}}), "3");
}

TEST(Ledger, AForkKnowsTheTurnsThatItKeeps) {
    Scene scene;
    ASSERT_TRUE(scene.turn("t1", InputKind::kHistory, {{1, 2}}, {3}));
    ASSERT_TRUE(scene.turn("t2", InputKind::kSuffix, {{4}}, {5}));
    ASSERT_TRUE(scene.ledger.fork(scene.key, "b", 1));
    scene.key.conversation_id = "b";
    EXPECT_EQ(scene.duplicate("t1", InputKind::kHistory, {{1, 2}}), "3");
    EXPECT_EQ(scene.duplicate("t2", InputKind::kSuffix, {{4}}), "unknown");
}

TEST(Ledger, AVersionIsGivenOnce) {
    Scene scene;
    const auto version = [&] { return index(scene.ledger.find(scene.key)->version); };
    scene.first_turn();
    EXPECT_EQ(version(), 1);
    ASSERT_TRUE(scene.commit(*scene.begin(InputKind::kSuffix, {{7}}), {8}));
    EXPECT_EQ(version(), 2);
    ASSERT_TRUE(scene.ledger.rewind(scene.key, 1));
    EXPECT_EQ(version(), 3);
    ASSERT_TRUE(scene.ledger.fork(scene.key, "b", {}));
    ChatRequest stale = scene.request(InputKind::kSuffix, {{7}});
    stale.parent = Version{1};  // the turn that is the last one again, not the version
    EXPECT_EQ(scene.ledger.begin(stale, RequestId{90}, scene.store).error().reason, RefusalReason::kParentMismatch);
    stale.parent = Version{3};
    EXPECT_TRUE(scene.ledger.begin(stale, RequestId{91}, scene.store));
    scene.key.conversation_id = "b";
    EXPECT_EQ(version(), 4);
    scene.ledger.verify();
}

TEST(Ledger, ABusyConversationSaysWhichRequestRuns) {
    Scene scene;
    scene.first_turn();
    scene.next_request = 7;
    ASSERT_TRUE(scene.begin(InputKind::kSuffix, {{7}}));
    const auto second = scene.begin(InputKind::kSuffix, {{7}});
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().running, RequestId{7});
    EXPECT_NE(second.error().message().find("request 7 runs"), std::string::npos);
}

// Clients that resend everything: what is committed is not kept a second time.
TEST(Ledger, WholeHistoriesAreStoredOnce) {
    Scene scene;
    std::vector<TokenId> history = {1, 2, 3};
    for (TokenId turn = 0; turn < 50; ++turn) {
        const auto start = scene.begin(InputKind::kHistory, {history});
        ASSERT_TRUE(start && scene.commit(*start, {50 + turn}));
        history.insert(history.end(), {50 + turn, 10, 11});
    }
    EXPECT_EQ(scene.ledger.find(scene.key)->committed.size(), 3 + 3 * 50 - 2);
    EXPECT_EQ(scene.store.stored_tokens(), static_cast<size_t>(3 + 3 * 50 - 2));
}

// The fork holds what was committed: a copy of the client's would be a second one.
TEST(Ledger, AHistoryThatAForkSharesIsStoredOnce) {
    Scene scene;
    scene.first_turn();
    ASSERT_TRUE(scene.ledger.fork(scene.key, "b", {}));
    const auto start = scene.begin(InputKind::kHistory, {{1, 2, 3, 4, 5, 6, 7}});
    ASSERT_TRUE(start && scene.commit(*start, {8}));
    EXPECT_EQ(scene.store.stored_tokens(), 8u);
}

TEST(Ledger, ASeamOutsideOfWhatIsCommonIsNone) {
    for (const auto& [last, is_seam] : {std::pair{TokenId{6}, true}, {TokenId{9}, false}}) {
        Scene scene;
        scene.first_turn();
        const auto start = scene.begin(InputKind::kHistory, {{1, 2, 3, 4, 5, last, 7}});
        EXPECT_EQ(start->seam.has_value(), is_seam) << "position 5 is that of token 6";
    }
}

TEST(Ledger, ATurnHasTheMessageEndsBehindTheTurnsBeforeIt) {
    Scene scene;
    ASSERT_TRUE(scene.commit(*scene.begin(InputKind::kHistory, {{}, {1, 2}}), {3}));
    ASSERT_TRUE(scene.commit(*scene.begin(InputKind::kHistory, {{1, 2}, {3}, {4}, {5}}), {6}));
    const auto& turns = scene.ledger.find(scene.key)->turns;
    ASSERT_EQ(turns.size(), 2u);
    EXPECT_THAT(turns[0].message_ends, ElementsAre(2));
    EXPECT_THAT(turns[1].message_ends, ElementsAre(4, 5));
}

TEST(Ledger, ARefusalNamesItsCallAndItsConversation) {
    Refusal refusal{.conversation = "a", .problem = " has 2 turns, wanted 3", .call = "fork"};
    EXPECT_EQ(refusal.message(), "fork: conversation 'a' has 2 turns, wanted 3");
    refusal.call = "";
    EXPECT_EQ(refusal.message(), "conversation 'a' has 2 turns, wanted 3");
    refusal.conversation = "";
    EXPECT_EQ(refusal.message(), "the conversation has 2 turns, wanted 3");
    refusal.problem = ": the suffix has no tokens";
    EXPECT_EQ(refusal.message(), "the suffix has no tokens");
    refusal.call = "turn";
    EXPECT_EQ(refusal.message(), "turn: the suffix has no tokens");
    Scene scene;
    EXPECT_EQ(scene.begin(InputKind::kSuffix, {{7}}).error().call, "suffix");
    EXPECT_EQ(scene.begin(InputKind::kRegenerate, {}).error().call, "regenerate");
    scene.first_turn();
    EXPECT_EQ(scene.ledger.remove(scene.key), 0);
    EXPECT_EQ(scene.ledger.remove(scene.key).error().call, "delete");
}

TEST(LedgerDeathTest, VerifySeesAGap) {
    Scene scene;
    std::vector<Turn> turns(2);
    turns[0] = {.prompt_end = 3, .end = 2, .version = Version{1}};
    turns[1] = {.prompt_end = 4, .end = 5, .version = Version{2}};
    const std::vector<TokenId> committed{1, 2, 3, 4, 5};
    scene.ledger.restore(scene.key, scene.store.store(committed), turns, Version{2});
    EXPECT_DEATH(scene.ledger.verify(), "a turn \\[3, 2\\) after 0");
}

TEST(LedgerDeathTest, APromptHoldsTheTurnsThatItKeeps) {
    Scene scene;
    scene.first_turn();
    TurnStart wrong = *scene.begin(InputKind::kSuffix, {{7}});
    wrong.prompt = wrong.prompt.slice(0, 6);  // the kept turn's tokens and no more
    EXPECT_DEATH((void)scene.commit(wrong, {2}), "a prompt of 6 tokens, 6 of them committed, after 1 turns of 6");
}

TEST(LedgerDeathTest, ALeaseThatWasNeverGivenIsNotGivenBack) {
    Scene scene;
    EXPECT_DEATH(scene.ledger.discard({scene.key, 1}), "lease 1 was never given, 1 is next");
}

}  // namespace
}  // namespace verbatim
