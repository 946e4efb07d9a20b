// Turns and the seam (DESIGN.md, nouns): what a request's prompt is, what is reused of it, and why the rest is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/engine_scene.h"

namespace verbatim::tests {
namespace {

using ::testing::ElementsAre;

const std::vector<TokenId> kMore = iota_tokens(500, 5);

TEST(Turns, TheLastSampledTokenIsCommittedAndNotResident) {
    EngineScene scene;
    const FinishedEvent event = scene.complete(scene.history("a", kPrompt));
    EXPECT_TRUE(event.committed);
    EXPECT_EQ(scene.committed("a"), kPrompt + scene.expected(kPrompt, 4));
    EXPECT_THAT(scene.head_lengths("a", HeadKind::kTurn), ElementsAre(13));
    EXPECT_THAT(scene.head_lengths("a", HeadKind::kPrompt), ElementsAre(9));
}

TEST(Turns, ASuffixFollowsTheCommittedTokensAndComputesTheSeamFirst) {
    EngineScene scene;
    scene.complete(scene.history("a", kPrompt));
    const std::vector<TokenId> before = scene.committed("a");
    const FinishedEvent event = scene.complete(scene.suffix("a", kMore));
    EXPECT_EQ(event.num_reused_tokens, 13);
    EXPECT_EQ(scene.streamed(event.request), scene.expected(before + kMore, 4));
    EXPECT_EQ(scene.not_reused(NotReused::kSeam), 1);
    EXPECT_EQ(scene.not_reused(NotReused::kNewTokens), 5);
    EXPECT_EQ(scene.not_reused(NotReused::kNewConversation), 10);
    EXPECT_EQ(scene.engine.stats().tail_copies, 1);
    EXPECT_EQ(scene.engine.stats().state_copies, 1);
    scene.expect_home();
}

TEST(Turns, TheTemplateSuppliesTheEndOfTurnAfterALength) {
    EngineScene scene({.end_of_turn = 7});
    scene.complete(scene.history("a", kPrompt));
    const std::vector<TokenId> before = scene.committed("a");
    ASSERT_NE(before.back(), 7);
    const FinishedEvent event = scene.complete(scene.suffix("a", kMore));
    EXPECT_EQ(scene.streamed(event.request), scene.expected(before + std::vector<TokenId>{7} + kMore, 4));
    EXPECT_EQ(event.num_reused_tokens, 13);
}

TEST(Turns, TheTemplateSuppliesNoSecondEndOfTurn) {
    const TokenId last = EngineScene().expected(kPrompt, 4).back();
    EngineScene scene({.end_of_turn = last});
    scene.complete(scene.history("a", kPrompt));
    const std::vector<TokenId> before = scene.committed("a");
    const FinishedEvent event = scene.complete(scene.suffix("a", kMore));
    EXPECT_EQ(scene.streamed(event.request), scene.expected(before + kMore, 4));
}

// Stop string [t2, t3] of the output t0 t1 t2 t3.
struct Stopped {
    Stopped() : scene(), output(scene.expected(kPrompt, 4)) {
        ChatRequest request = scene.history("a", kPrompt, 8);
        request.stop_strings = {{output[2], output[3]}};
        event = scene.complete(request);
    }
    EngineScene scene;
    std::vector<TokenId> output;
    FinishedEvent event;
};

TEST(Turns, AStopStringIsCutFromTheTextAndCommittedAllTheSame) {
    Stopped stopped;
    EXPECT_EQ(stopped.event.reason, FinishReason::kStopString);
    EXPECT_EQ(stopped.event.num_output_tokens, 4);
    EXPECT_EQ(stopped.event.num_text_tokens, 2);
    EXPECT_THAT(stopped.scene.streamed(stopped.event.request), ElementsAre(stopped.output[0], stopped.output[1]));
    EXPECT_EQ(stopped.scene.committed("a"), kPrompt + stopped.output);
}

TEST(Turns, AfterAStopStringASuffixGoesOnFromTheTurnHead) {
    Stopped stopped;
    const FinishedEvent event = stopped.scene.complete(stopped.scene.suffix("a", kMore));
    EXPECT_EQ(event.num_reused_tokens, 13);
    EXPECT_EQ(stopped.scene.streamed(event.request), stopped.scene.expected(kPrompt + stopped.output + kMore, 4));
}

TEST(Turns, AfterAStopStringTheTextSentAgainMatchesThePromptHead) {
    Stopped stopped;
    const std::vector<TokenId> text(stopped.output.begin(), stopped.output.begin() + 2);
    const FinishedEvent event = stopped.scene.complete(stopped.scene.history("a", kPrompt + text + kMore));
    EXPECT_EQ(event.num_reused_tokens, 9);
    EXPECT_EQ(stopped.scene.not_reused(NotReused::kBetweenHeads), 3);  // the prompt's last token and the text
    EXPECT_EQ(stopped.scene.engine.ledger().find(stopped.scene.key("a"))->turns.size(), 1u);
}

TEST(Turns, RegenerateComputesOneTokenAndMovesTheNameToTheOtherAnswer) {
    EngineScene scene;
    scene.complete(scene.history("a", kPrompt));
    ChatRequest request = scene.regenerate("a", 6);
    request.sampling.temperature = 1;
    request.seed = 77;
    const FinishedEvent event = scene.complete(request);
    EXPECT_EQ(event.num_reused_tokens, 9);
    EXPECT_EQ(scene.engine.stats().computed_prompt_tokens, 10 + 1);
    EXPECT_EQ(scene.not_reused(NotReused::kLastToken), 1);
    EXPECT_EQ(scene.committed("a"), kPrompt + scene.streamed(event.request));
    EXPECT_EQ(scene.engine.ledger().find(scene.key("a"))->turns.size(), 1u);
    EXPECT_THAT(scene.head_lengths("a", HeadKind::kTurn), ElementsAre(15));
    scene.expect_home();
}

TEST(Turns, AnEditAttachesBelowTheDivergenceAndRebasesAtCommit) {
    EngineScene scene;
    scene.complete(scene.history("a", kPrompt));
    scene.complete(scene.suffix("a", kMore));
    std::vector<TokenId> edited = scene.committed("a");
    ASSERT_EQ(edited.size(), 23u);
    edited[16] = 999;
    edited.resize(19);
    const FinishedEvent event = scene.complete(scene.history("a", edited));
    EXPECT_EQ(event.num_reused_tokens, 13);                    // the first turn's head
    EXPECT_EQ(scene.not_reused(NotReused::kBetweenHeads), 3);  // 13 (once a seam, computed since), 14 and 15
    EXPECT_EQ(scene.committed("a"), edited + scene.expected(edited, 4));
    EXPECT_EQ(scene.engine.ledger().find(scene.key("a"))->turns.size(), 2u);
    EXPECT_THAT(scene.head_lengths("a", HeadKind::kTurn), ElementsAre(13, 22));
    scene.expect_home();
}

TEST(Turns, AHistoryThatSharesNothingStartsFromZeroAndReplacesTheConversation) {
    EngineScene scene;
    scene.complete(scene.history("a", kPrompt));
    const FinishedEvent event = scene.complete(scene.history("a", iota_tokens(700, 6)));
    EXPECT_EQ(event.num_reused_tokens, 0);
    EXPECT_EQ(scene.committed("a").front(), 700);
    EXPECT_THAT(scene.head_lengths("a", HeadKind::kTurn), ElementsAre(9));
}

TEST(Turns, ASuffixWhoseHeadsWereEvictedIsComputedFromTheLedgersTokens) {
    EngineScene scene({.num_blocks = 8});
    scene.complete(scene.history("a", kPrompt));
    const std::vector<TokenId> before = scene.committed("a");
    scene.complete(scene.history("b", iota_tokens(300, 22)));
    ASSERT_TRUE(scene.head_lengths("a", HeadKind::kTurn).empty());
    const FinishedEvent event = scene.complete(scene.suffix("a", kMore));
    EXPECT_EQ(event.num_reused_tokens, 0);
    EXPECT_EQ(scene.not_reused(NotReused::kEvicted), 13);
    EXPECT_EQ(scene.not_reused(NotReused::kSeam), 1);
    EXPECT_EQ(scene.streamed(event.request), scene.expected(before + kMore, 4));
    scene.expect_home();
}

TEST(Turns, AKnownTurnIdReturnsTheRecordedAnswerAndComputesNothing) {
    EngineScene scene;
    ChatRequest request = scene.history("a", kPrompt);
    request.turn_id = "t1";
    const FinishedEvent event = scene.complete(request);
    const int64_t computed = scene.executor.num_computed_tokens();
    const auto again = scene.engine.submit(request);
    ASSERT_TRUE(again && again->recorded);
    EXPECT_EQ(again->recorded->output.to_vector(), scene.streamed(event.request));
    EXPECT_EQ(again->recorded->finish, FinishReason::kLength);
    EXPECT_EQ(again->recorded->version, event.version);
    EXPECT_FALSE(scene.step());
    EXPECT_EQ(scene.executor.num_computed_tokens(), computed);
    EXPECT_EQ(scene.engine.stats().repeats, 1);
}

TEST(Turns, ATurnIdOfAnAbortedTurnIsComputedAgainFromItsPromptHead) {
    EngineScene scene;
    ChatRequest request = scene.history("a", kPrompt);
    request.turn_id = "t1";
    const RequestId aborted = scene.submit(request);
    scene.step();
    scene.abort(aborted);
    const FinishedEvent event = scene.complete(request);
    EXPECT_TRUE(event.committed);
    EXPECT_EQ(event.num_reused_tokens, 9);
    EXPECT_EQ(scene.streamed(event.request), scene.expected(kPrompt, 4));
}

TEST(Turns, ParentHeadIsComparedBeforeTheTurnStarts) {
    EngineScene scene;
    ChatRequest first = scene.history("a", kPrompt);
    first.parent = Version{5};
    EXPECT_EQ(scene.refused(first), RefusalReason::kParentMismatch);
    first.parent = kNoVersion;
    const FinishedEvent event = scene.complete(first);
    ChatRequest second = scene.suffix("a", kMore);
    second.parent = kNoVersion;
    EXPECT_EQ(scene.refused(second), RefusalReason::kParentMismatch);
    second.parent = event.version;
    EXPECT_TRUE(scene.complete(second).committed);
    EXPECT_EQ(scene.refused(second), RefusalReason::kParentMismatch);
}

TEST(Turns, PrefillOnlyCommitsThePromptWithoutASeam) {
    EngineScene scene;
    const FinishedEvent event = scene.complete(scene.history("a", kPrompt, 0));
    EXPECT_TRUE(event.committed);
    EXPECT_EQ(event.num_output_tokens, 0);
    EXPECT_THAT(scene.head_lengths("a", HeadKind::kTurn), ElementsAre(10));
    const FinishedEvent next = scene.complete(scene.suffix("a", kMore));
    EXPECT_EQ(next.num_reused_tokens, 10);
    EXPECT_EQ(scene.not_reused(NotReused::kSeam), 0);
    EXPECT_EQ(scene.streamed(next.request), scene.expected(kPrompt + kMore, 4));
}

TEST(Turns, MessageEndsAreCheckpointsForOtherConversationsOfTheSalt) {
    EngineScene scene({.lookup = LookupMode::kPrefix});
    ChatRequest request = scene.history("a", iota_tokens(10, 6));
    request.messages.push_back({scene.store.store(kMore), true});
    scene.complete(request);
    EXPECT_THAT(scene.head_lengths("a", HeadKind::kCheckpoint), ElementsAre(6));
    const FinishedEvent event = scene.complete(scene.history("b", iota_tokens(10, 6) + iota_tokens(800, 4)));
    EXPECT_EQ(event.num_reused_tokens, 6);
    EXPECT_EQ(scene.engine.stats().tail_copies, 1);
    EXPECT_EQ(scene.streamed(event.request), scene.expected(iota_tokens(10, 6) + iota_tokens(800, 4), 4));
}

TEST(Turns, AMessageMaySayThatItsEndIsNoCheckpoint) {
    EngineScene scene;
    ChatRequest request = scene.history("a", iota_tokens(10, 6));
    request.messages.front().checkpoint = false;
    request.messages.push_back({scene.store.store(kMore), true});
    scene.complete(request);
    EXPECT_TRUE(scene.head_lengths("a", HeadKind::kCheckpoint).empty());
}

TEST(Turns, WithoutTheCacheNothingIsAttachedAndTheAnswerIsTheSame) {
    EngineScene scene;
    scene.complete(scene.history("a", kPrompt));
    const std::vector<TokenId> before = scene.committed("a");
    ChatRequest request = scene.suffix("a", kMore);
    request.use_cache = false;
    const FinishedEvent event = scene.complete(request);
    EXPECT_EQ(event.num_reused_tokens, 0);
    EXPECT_EQ(scene.not_reused(NotReused::kCacheOff), 19);
    EXPECT_EQ(scene.streamed(event.request), scene.expected(before + kMore, 4));
}

TEST(Turns, OlderTurnHeadsAreLetGoAndThatIsTheReason) {
    EngineScene scene({.num_blocks = 128, .keep_turn_heads = 1});
    scene.complete(scene.history("a", kPrompt));
    const std::vector<TokenId> first = scene.committed("a");
    scene.complete(scene.suffix("a", kMore));
    const FinishedEvent event = scene.complete(scene.history("a", first + iota_tokens(700, 4)));
    EXPECT_EQ(event.num_reused_tokens, 0);
    EXPECT_EQ(scene.not_reused(NotReused::kNotRetained), 13);
    EXPECT_GT(scene.log.of(EventKind::kLetGo).size(), 0u);
}

TEST(Turns, OfTheCheckpointsTheNewestAreKept) {
    EngineScene scene({.keep_checkpoints = 2});
    ChatRequest request = scene.history("a", iota_tokens(100, 4));
    for (const TokenId first : {200, 300, 400}) request.messages.push_back({scene.store.store(iota_tokens(first, 4))});
    scene.complete(request);
    EXPECT_EQ(scene.head_lengths("a", HeadKind::kCheckpoint), (std::vector<int64_t>{8, 12}));  // and not the one at 4
    scene.expect_home();
}

}  // namespace
}  // namespace verbatim::tests
