// The ledger alone: leases, turns and names; the whole of it beside a model is tests/engine/model.
#include "engine/ledger/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace verbatim {
namespace {

using ::testing::ElementsAre;

struct Scene {
    explicit Scene(std::optional<TokenId> end_of_turn = {}) : ledger({end_of_turn}) {}

    ChatRequest request(InputKind input, const std::vector<std::vector<TokenId>>& messages) {
        ChatRequest request;
        request.conversation = key;
        request.input = input;
        for (const auto& tokens : messages) request.messages.push_back({store.store(tokens), true});
        return request;
    }
    OrRefusal<TurnStart> begin(InputKind input, const std::vector<std::vector<TokenId>>& messages) {
        return ledger.begin(request(input, messages), store);
    }
    bool commit(const TurnStart& start, const std::vector<TokenId>& output) {
        Turn turn;
        turn.num_text_tokens = static_cast<int64_t>(output.size());
        const bool committed = ledger.commit(start, store.store(output), turn);
        ledger.verify();
        return committed;
    }
    // History {1 2} {3 4}, answered by 5 6.
    void first_turn() { ASSERT_TRUE(commit(*begin(InputKind::kHistory, {{1, 2}, {3, 4}}), {5, 6})); }

    TokenStore store{100};
    Ledger ledger;
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

TEST(Ledger, ARecordedTurnIsFoundByItsIdUntilItsTurnIsGone) {
    Scene scene;
    ChatRequest request = scene.request(InputKind::kHistory, {{1, 2}});
    request.turn_id = "t";
    EXPECT_FALSE(scene.ledger.recorded(request));
    Turn turn;
    turn.turn_id = "t";
    turn.num_text_tokens = 1;
    turn.finish = FinishReason::kStopString;
    ASSERT_TRUE(scene.ledger.commit(*scene.ledger.begin(request, scene.store),
                                    scene.store.store(std::vector<TokenId>{5, 6}), turn));
    const auto recorded = scene.ledger.recorded(request);
    ASSERT_TRUE(recorded);
    EXPECT_THAT(recorded->output.to_vector(), ElementsAre(5));
    EXPECT_EQ(recorded->finish, FinishReason::kStopString);
    ASSERT_TRUE(scene.commit(*scene.begin(InputKind::kRegenerate, {}), {7}));
    EXPECT_FALSE(scene.ledger.recorded(request));
}

TEST(LedgerDeathTest, VerifySeesAGap) {
    Scene scene;
    const auto start = scene.begin(InputKind::kHistory, {{1}});
    TurnStart wrong = *start;
    wrong.prompt = {};
    EXPECT_DEATH((void)scene.commit(wrong, {2}), "a turn \\[0, 1\\) after 0");
}

}  // namespace
}  // namespace verbatim
