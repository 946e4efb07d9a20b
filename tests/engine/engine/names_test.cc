// Names: fork, rewind, delete, revoke, and what they do to heads and to turns that run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/engine_scene.h"

namespace verbatim::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Names, AForkGoesOnFromTheSameHeadAndLeavesItsOriginAlone) {
    EngineScene scene;
    const FinishedEvent first = scene.complete(scene.history("a", kPrompt));
    ASSERT_EQ(scene.engine.fork(scene.key("a"), "b"), 14);
    const FinishedEvent forked = scene.complete(scene.suffix("b", iota_tokens(500, 3)));
    EXPECT_EQ(forked.num_reused_tokens, 13);
    EXPECT_EQ(scene.engine.stats().tail_copies, 1);
    EXPECT_EQ(scene.committed("a").size(), 14u);
    EXPECT_EQ(scene.streamed(forked.request), scene.expected(scene.committed("a") + iota_tokens(500, 3), 4));
    EXPECT_EQ(scene.complete(scene.suffix("a", iota_tokens(600, 1))).num_reused_tokens, 13);
    EXPECT_NE(scene.engine.cache().find(first.head), nullptr);
    scene.expect_home();
}

TEST(Names, AForkOfFewerTurnsHasTheirTokensOnly) {
    EngineScene scene;
    scene.complete(scene.history("a", kPrompt));
    scene.complete(scene.suffix("a", iota_tokens(500, 3)));
    ASSERT_EQ(scene.engine.fork(scene.key("a"), "b", 1), 14);
    EXPECT_EQ(scene.committed("b").size(), 14u);
    EXPECT_EQ(scene.head_lengths("b", HeadKind::kTurn), std::vector<int64_t>{13});
    EXPECT_EQ(scene.complete(scene.suffix("b", iota_tokens(700, 2))).num_reused_tokens, 13);
}

TEST(Names, ForksAreRefusedForUnknownTakenAndMissingTurns) {
    EngineScene scene;
    scene.complete(scene.history("a", kPrompt));
    scene.complete(scene.history("b", kPrompt));
    const auto reason = [&](const char* from, const char* to, std::optional<size_t> turns) {
        const auto forked = scene.engine.fork(scene.key(from), to, turns);
        return forked ? RefusalReason::kCount : forked.error().reason;
    };
    EXPECT_EQ(reason("x", "c", {}), RefusalReason::kUnknownConversation);
    EXPECT_EQ(reason("a", "b", {}), RefusalReason::kNameTaken);
    EXPECT_EQ(reason("a", "c", 0), RefusalReason::kNoSuchTurn);
    EXPECT_EQ(reason("a", "c", 2), RefusalReason::kNoSuchTurn);
    EXPECT_EQ(scene.engine.stats().forks, 0);
}

// The aborted turn's prompt head lies under the name `b`, though the conversation has committed nothing.
TEST(Names, AForkMayTakeAnIdWhoseOnlyTurnWasAborted) {
    EngineScene scene;
    scene.complete(scene.history("a", kPrompt));
    const RequestId aborted = scene.submit(scene.history("b", iota_tokens(300, 9)));
    scene.step();
    scene.abort(aborted);
    scene.run();
    ASSERT_THAT(scene.head_lengths("b", HeadKind::kPrompt), ElementsAre(8));
    ASSERT_TRUE(scene.engine.fork(scene.key("a"), "b"));
    EXPECT_THAT(scene.head_lengths("b", HeadKind::kTurn), ElementsAre(13));
    EXPECT_EQ(scene.complete(scene.suffix("b", iota_tokens(500, 3))).num_reused_tokens, 13);
    scene.expect_home();
}

TEST(Names, WhatAnAbortedFirstTurnLeftCanBeDeleted) {
    EngineScene scene;
    const RequestId aborted = scene.submit(scene.history("b", iota_tokens(300, 9)));
    EXPECT_EQ(scene.engine.remove(scene.key("b")).error().reason, RefusalReason::kBusy);
    scene.step();
    scene.abort(aborted);
    scene.run();
    ASSERT_THAT(scene.head_lengths("b", HeadKind::kPrompt), ElementsAre(8));
    EXPECT_TRUE(scene.engine.remove(scene.key("b")));
    EXPECT_TRUE(scene.engine.cache().heads().empty());
    EXPECT_EQ(scene.engine.remove(scene.key("b")).error().reason, RefusalReason::kUnknownConversation);
    scene.expect_home();
}

TEST(Names, RewindGoesBackToAnOlderTurn) {
    EngineScene scene;
    scene.complete(scene.history("a", kPrompt));
    const std::vector<TokenId> first = scene.committed("a");
    scene.complete(scene.suffix("a", iota_tokens(500, 3)));
    ASSERT_EQ(scene.engine.rewind(scene.key("a"), 1), 14);
    EXPECT_EQ(scene.committed("a"), first);
    EXPECT_THAT(scene.head_lengths("a", HeadKind::kTurn), ElementsAre(13));
    const FinishedEvent again = scene.complete(scene.suffix("a", iota_tokens(700, 5)));
    EXPECT_EQ(again.num_reused_tokens, 13);
    EXPECT_EQ(scene.streamed(again.request), scene.expected(first + iota_tokens(700, 5), 4));
    scene.expect_home();
}

// A turn without output ends where its head ends.
TEST(Names, RewindKeepsTheHeadThatEndsWithTheTurn) {
    EngineScene scene;
    scene.complete(scene.history("a", kPrompt, 0));
    scene.complete(scene.suffix("a", iota_tokens(500, 3)));
    ASSERT_EQ(scene.engine.rewind(scene.key("a"), 1), 10);
    EXPECT_THAT(scene.head_lengths("a", HeadKind::kTurn), ElementsAre(10));
    EXPECT_EQ(scene.complete(scene.suffix("a", iota_tokens(700, 5))).num_reused_tokens, 10);
    scene.expect_home();
}

TEST(Names, RewindAndDeleteAreRefusedWhileATurnRunsOrForWhatIsNotThere) {
    EngineScene scene;
    EXPECT_EQ(scene.engine.rewind(scene.key("a"), 1).error().reason, RefusalReason::kUnknownConversation);
    EXPECT_EQ(scene.engine.remove(scene.key("a")).error().reason, RefusalReason::kUnknownConversation);
    scene.complete(scene.history("a", kPrompt));
    EXPECT_EQ(scene.engine.rewind(scene.key("a"), 2).error().reason, RefusalReason::kNoSuchTurn);
    EXPECT_EQ(scene.engine.rewind(scene.key("a"), 0).error().reason, RefusalReason::kNoSuchTurn);
    scene.submit(scene.suffix("a", iota_tokens(500, 3)));
    EXPECT_EQ(scene.engine.rewind(scene.key("a"), 1).error().reason, RefusalReason::kBusy);
    EXPECT_EQ(scene.engine.remove(scene.key("a")).error().reason, RefusalReason::kBusy);
}

TEST(Names, ADeletedConversationLeavesNoMemoryBehind) {
    EngineScene scene;
    scene.complete(scene.history("a", kPrompt));
    scene.complete(scene.suffix("a", iota_tokens(500, 3)));
    ASSERT_TRUE(scene.engine.remove(scene.key("a")));
    EXPECT_THAT(scene.engine.cache().heads(), IsEmpty());
    EXPECT_EQ(scene.engine.cache().kv().pool().num_free(), scene.options.num_blocks);
    EXPECT_EQ(scene.engine.cache().state().pool().num_free(), scene.options.num_state_rows);
    EXPECT_EQ(scene.refused(scene.suffix("a", {1})), RefusalReason::kUnknownConversation);
}

// The prompt head is staged and not yet materialised when the conversation goes.
TEST(Names, ADeletedConversationDoesNotComeBackWithAStagedPromptHead) {
    EngineScene scene({.lag_steps = 2});
    scene.complete(scene.history("a", kPrompt));
    const RequestId aborted = scene.submit(scene.suffix("a", iota_tokens(500, 9)));
    scene.step();
    ASSERT_FALSE(scene.engine.publication().empty());
    scene.abort(aborted);
    ASSERT_TRUE(scene.engine.remove(scene.key("a")));
    scene.run();
    EXPECT_EQ(scene.engine.cache().find(scene.key("a")), nullptr);
    EXPECT_THAT(scene.engine.cache().heads(), IsEmpty());
    scene.expect_home();
}

TEST(Names, ADeletedConversationDoesNotComeBackWithARevokedTurnsPromptHead) {
    EngineScene scene({.step_tokens = 4});
    scene.complete(scene.history("a", kPrompt));
    scene.submit(scene.suffix("a", iota_tokens(500, 9)));
    scene.step();
    ASSERT_TRUE(scene.engine.revoke(scene.key("a")));
    ASSERT_TRUE(scene.engine.remove(scene.key("a")));
    scene.run();
    EXPECT_EQ(scene.engine.cache().find(scene.key("a")), nullptr);
    scene.expect_home();
}

TEST(Names, ADeletedConversationDoesNotComeBackWithATurnThatHadNotBegun) {
    EngineScene scene;
    scene.complete(scene.history("a", kPrompt));
    scene.submit(scene.suffix("a", iota_tokens(500, 9)));
    ASSERT_TRUE(scene.engine.revoke(scene.key("a")));
    EXPECT_EQ(scene.engine.remove(scene.key("a")), 0);
    scene.run();
    EXPECT_EQ(scene.engine.cache().find(scene.key("a")), nullptr);
    scene.expect_home();
}

TEST(Names, ARevokedTurnRunsOnAndCannotCommit) {
    EngineScene scene;
    scene.complete(scene.history("a", kPrompt));
    const std::vector<TokenId> before = scene.committed("a");
    const RequestId lost = scene.submit(scene.suffix("a", iota_tokens(500, 3)));
    scene.step();
    ASSERT_TRUE(scene.engine.revoke(scene.key("a")));
    EXPECT_FALSE(scene.engine.revoke(scene.key("a")));
    const RequestId heir = scene.submit(scene.suffix("a", iota_tokens(600, 3), 8));
    scene.run();
    EXPECT_FALSE(scene.finished(lost).committed);
    EXPECT_EQ(scene.streamed(lost).size(), 4u);
    EXPECT_TRUE(scene.finished(heir).committed);
    EXPECT_EQ(scene.committed("a"), before + iota_tokens(600, 3) + scene.streamed(heir));
    scene.expect_home();
}

// The lost writer ends after the heir has committed: its lease is of an older generation.
TEST(Names, ACommitUnderAnOldGenerationChangesNothing) {
    EngineScene scene;
    const RequestId lost = scene.submit(scene.history("a", kPrompt, 12));
    scene.step();
    scene.engine.revoke(scene.key("a"));
    const RequestId heir = scene.submit(scene.history("a", kPrompt, 2));
    scene.run();
    EXPECT_FALSE(scene.finished(lost).committed);
    EXPECT_TRUE(scene.finished(heir).committed);
    EXPECT_EQ(scene.committed("a").size(), 12u);
    EXPECT_EQ(scene.engine.ledger().find(scene.key("a"))->turns.size(), 1u);
}

TEST(Names, SaltsAreApartThoughIdsAndTokensAreTheSame) {
    for (const LookupMode lookup : {LookupMode::kConversation, LookupMode::kPrefix}) {
        EngineScene scene({.lookup = lookup});
        scene.complete(scene.history("a", kPrompt));
        for (const char* salt : {"", "x"}) {
            ChatRequest request = scene.history("a", kPrompt + iota_tokens(500, 4));
            request.conversation.salt.value = salt;
            const FinishedEvent event = scene.complete(request);
            EXPECT_EQ(event.num_reused_tokens, 0) << '"' << salt << '"';
            EXPECT_TRUE(event.committed);
        }
        EXPECT_EQ(scene.not_reused(NotReused::kNewConversation), 10 + 14 + 14);
        EXPECT_EQ(scene.committed("a").size(), 14u);
        scene.expect_home();
    }
}

TEST(Names, ASaltIsBusyByItselfOnly) {
    EngineScene scene;
    scene.submit(scene.history("a", kPrompt));
    EXPECT_EQ(scene.refused(scene.history("a", kPrompt)), RefusalReason::kBusy);
    ChatRequest other = scene.history("a", kPrompt);
    other.conversation.salt.value = "x";
    scene.submit(other);
    scene.run();
    EXPECT_EQ(scene.engine.stats().commits, 2);
}

TEST(Names, AForkIsNotGivenThePromptHeadThatAnAbortedTurnOfItsNameHadStaged) {
    EngineScene scene({.lag_steps = 2});
    scene.complete(scene.history("a", iota_tokens(0, 9)));
    const RequestId aborted = scene.submit(scene.history("b", iota_tokens(50, 14)));
    scene.step();
    scene.abort(aborted);
    ASSERT_FALSE(scene.engine.publication().empty());
    ASSERT_TRUE(scene.engine.fork(scene.key("a"), "b"));
    scene.run();
    EXPECT_THAT(scene.head_lengths("b", HeadKind::kPrompt), ElementsAre(8));
    scene.expect_home();
}

}  // namespace
}  // namespace verbatim::tests
