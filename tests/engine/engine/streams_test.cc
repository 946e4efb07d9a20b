// What a client gets: tokens, the reason of the end, and nothing that a stop string takes back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/engine_scene.h"

namespace verbatim::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

TEST(Streams, AStopTokenIsReportedAndCommitted) {
    EngineScene scene;
    const std::vector<TokenId> wanted = scene.expected(kPrompt, 3);
    ChatRequest request = scene.history("a", kPrompt, 8);
    request.stop_tokens = {wanted[2]};
    const FinishedEvent event = scene.complete(request);
    EXPECT_EQ(event.reason, FinishReason::kStopToken);
    EXPECT_EQ(scene.streamed(event.request), wanted);
    EXPECT_EQ(scene.committed("a"), kPrompt + wanted);
}

TEST(Streams, TheStartOfAStopStringIsHeldBackUntilItIsNone) {
    EngineScene scene;
    const std::vector<TokenId> wanted = scene.expected(kPrompt, 4);
    ChatRequest request = scene.history("a", kPrompt, 4);
    request.stop_strings = {{wanted[1], wanted[2], 1 + wanted[3] % 900}};
    const RequestId id = scene.submit(request);
    std::vector<size_t> streamed;
    while (scene.step()) streamed.push_back(scene.streamed(id).size());
    EXPECT_THAT(streamed, ElementsAre(1, 1, 1, 4, 4));  // the last step ends the slot
    EXPECT_EQ(scene.finished(id).reason, FinishReason::kLength);
    EXPECT_EQ(scene.streamed(id), wanted);
}

TEST(Streams, TheLongestStopStringIsCut) {
    EngineScene scene;
    const std::vector<TokenId> wanted = scene.expected(kPrompt, 4);
    ChatRequest request = scene.history("a", kPrompt, 8);
    request.stop_strings = {{wanted[3]}, {wanted[1], wanted[2], wanted[3]}, {wanted[2], wanted[3]}};
    const FinishedEvent event = scene.complete(request);
    EXPECT_EQ(event.reason, FinishReason::kStopString);
    EXPECT_THAT(scene.streamed(event.request), ElementsAre(wanted[0]));
}

TEST(Streams, AStopStringThatBeginsInThePromptIsNone) {
    EngineScene scene;
    const std::vector<TokenId> wanted = scene.expected(kPrompt, 2);
    ChatRequest request = scene.history("a", kPrompt, 2);
    request.stop_strings = {{kPrompt.back(), wanted[0]}};
    EXPECT_EQ(scene.complete(request).reason, FinishReason::kLength);
}

TEST(Streams, IgnoreStopGivesExactlyMaxTokens) {
    EngineScene scene;
    const std::vector<TokenId> wanted = scene.expected(kPrompt, 4);
    ChatRequest request = scene.history("a", kPrompt, 4);
    request.stop_tokens = {wanted[0]};
    request.stop_strings = {{wanted[1]}};
    request.ignore_stop = true;
    const FinishedEvent event = scene.complete(request);
    EXPECT_EQ(event.reason, FinishReason::kLength);
    EXPECT_EQ(scene.streamed(event.request), wanted);
}

TEST(Streams, ForcedOutputReplacesWhatIsDrawnAndSaysHowMuch) {
    EngineScene scene;
    ChatRequest request = scene.history("a", kPrompt, 99);
    request.forced_output = scene.store.store(iota_tokens(700, 5));
    request.stop_tokens = {701};
    const FinishedEvent event = scene.complete(request);
    EXPECT_EQ(event.reason, FinishReason::kLength);
    EXPECT_EQ(scene.streamed(event.request), iota_tokens(700, 5));
    EXPECT_THAT(scene.head_lengths("a", HeadKind::kTurn), ElementsAre(14));
    scene.expect_home();
}

TEST(Streams, MaxTokensHasADefaultThatTheContextClamps) {
    EngineScene scene({.max_model_len = 16, .default_max_tokens = 5});
    ChatRequest request = scene.history("a", kPrompt);
    request.max_tokens.reset();
    EXPECT_EQ(scene.complete(request).num_output_tokens, 5);
    ChatRequest longer = scene.history("b", iota_tokens(0, 13));
    longer.max_tokens.reset();
    EXPECT_EQ(scene.complete(longer).num_output_tokens, 3);
}

TEST(Streams, ARequestWithoutASeedGetsOneThatIsReported) {
    EngineScene scene;
    ChatRequest request = scene.history("a", kPrompt);
    request.sampling.temperature = 1;
    const FinishedEvent event = scene.complete(request);
    request.conversation = scene.key("b");
    request.seed = event.seed;
    const FinishedEvent again = scene.complete(request);
    EXPECT_EQ(scene.streamed(again.request), scene.streamed(event.request));
    request.conversation = scene.key("c");
    request.seed = event.seed + 1;
    const FinishedEvent other = scene.complete(request);
    EXPECT_NE(scene.streamed(other.request), scene.streamed(event.request));
}

TEST(Streams, ATokenThatIsNotFiniteEndsTheTurnAndKeepsTheHead) {
    EngineScene scene({.fault_token = 503});
    scene.complete(scene.history("a", kPrompt));
    const std::vector<TokenId> before = scene.committed("a");
    const FinishedEvent event = scene.complete(scene.suffix("a", iota_tokens(500, 4)));
    EXPECT_EQ(event.reason, FinishReason::kNonFinite);
    EXPECT_EQ(event.fault_layer, 0);
    EXPECT_FALSE(event.committed);
    EXPECT_EQ(scene.committed("a"), before);
    EXPECT_EQ(scene.complete(scene.suffix("a", iota_tokens(600, 4))).num_reused_tokens, 13);
    scene.expect_home();
}

TEST(Streams, AnExecutorsErrorEndsEveryTurnAndKeepsEveryHead) {
    EngineScene scene({.fail_at_step = 5});
    scene.complete(scene.history("a", kPrompt));  // steps 0 .. 4: the last one ends the slot
    const RequestId running = scene.submit(scene.suffix("a", iota_tokens(500, 4)));
    const RequestId other = scene.submit(scene.history("b", kPrompt));
    const auto failed = scene.engine.step();
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().message, "step 5: told to fail");
    std::vector<FinishReason> reasons;
    for (const EngineEvent& event : scene.engine.take_events())
        reasons.push_back(std::get<FinishedEvent>(event).reason);
    EXPECT_THAT(reasons, ElementsAre(FinishReason::kExecutorFailed, FinishReason::kExecutorFailed));
    EXPECT_EQ(scene.engine.find(running), nullptr);
    EXPECT_EQ(scene.engine.find(other), nullptr);
    const auto failed_turns = scene.engine.take_failed_turns();
    ASSERT_EQ(failed_turns.size(), 2u);
    EXPECT_EQ(failed_turns[0].request, running);
    EXPECT_EQ(failed_turns[1].again.conversation.conversation_id, "b");
    EXPECT_TRUE(failed_turns[1].again.seed.has_value());
    EXPECT_TRUE(scene.engine.take_failed_turns().empty());
    scene.engine.verify();
    EXPECT_EQ(scene.engine.ledger().num_leases(), 0u);
    EXPECT_EQ(scene.engine.cache().kv().num_active_blocks(), 0);
    EXPECT_THAT(scene.head_lengths("a", HeadKind::kTurn), ElementsAre(13));
    EXPECT_EQ(scene.committed("a").size(), 14u);
    // It goes on: no slot that the executor has forgotten is ended, and the head is where it was.
    EXPECT_EQ(scene.complete(scene.suffix("a", iota_tokens(500, 4))).num_reused_tokens, 13);
    EXPECT_TRUE(scene.log.plans.back().new_sequences.empty());
    scene.expect_home();
}

// The same for a caller of plan_step() and apply(): the failure is passed instead of a result.
TEST(Streams, AFailureBetweenPlanAndApplyIsAStepsError) {
    EngineScene scene({.fail_at_step = 5});
    scene.complete(scene.history("a", kPrompt));
    const RequestId running = scene.submit(scene.suffix("a", iota_tokens(500, 4)));
    StepResult result;
    ASSERT_FALSE(scene.executor.execute(scene.engine.plan_step(), result));
    scene.engine.fail_step();
    EXPECT_EQ(scene.engine.find(running), nullptr);
    ASSERT_EQ(scene.engine.take_failed_turns().size(), 1u);
    scene.engine.verify();
    EXPECT_EQ(std::get<FinishedEvent>(scene.engine.take_events().front()).reason, FinishReason::kExecutorFailed);
    EXPECT_EQ(scene.complete(scene.suffix("a", iota_tokens(500, 4))).num_reused_tokens, 13);
    scene.expect_home();
}

// What its earlier steps were late with is given up, and its later steps say less than the failure did.
TEST(Streams, ALateExecutorGoesOnAfterAFailure) {
    EngineScene scene({.lag_steps = 3, .fail_at_step = 10});
    scene.complete(scene.history("a", kPrompt));
    const std::vector<TokenId> before = scene.committed("a");
    scene.submit(scene.suffix("a", iota_tokens(500, 4), 9));
    ASSERT_LT(scene.engine.next_step(), 10);
    while (scene.engine.next_step() < 10) scene.step();
    ASSERT_FALSE(scene.engine.step());
    scene.engine.verify();
    const FinishedEvent event = scene.complete(scene.suffix("a", iota_tokens(500, 4)));
    EXPECT_TRUE(event.committed);
    EXPECT_EQ(scene.streamed(event.request), scene.expected(before + iota_tokens(500, 4), 4));
    scene.expect_home();
}

// A turn that was left shares its only block with its prompt's head: nothing is fenced, its last steps are not over.
TEST(Streams, ALateExecutorIsReplacedWhenNothingRuns) {
    const SceneOptions options{.block_size = 16, .num_state_rows = 0, .lag_steps = 3};
    EngineScene scene(options);
    const RequestId left = scene.submit(scene.history("a", kPrompt, 6));
    for (int i = 0; i < 5; ++i) scene.step();
    scene.abort(left);
    scene.run();
    EXPECT_TRUE(scene.engine.idle());
    EXPECT_THAT(scene.head_lengths("a", HeadKind::kPrompt), ElementsAre(9));
    HashExecutorHolder fresh{options};
    scene.engine.replace_executor(fresh.executor);
    scene.engine.verify();
    const FinishedEvent event = scene.complete(scene.history("a", kPrompt));
    EXPECT_EQ(scene.streamed(event.request), scene.expected(kPrompt, 4));
}

TEST(StreamsDeathTest, OnlyAnOpenStepFails) {
    EngineScene scene;
    scene.complete(scene.history("a", kPrompt));
    EXPECT_DEATH(scene.engine.fail_step(), "no step is open");
}

TEST(Streams, AFreshExecutorGoesOnFromTheLedgersTokens) {
    EngineScene scene({.fail_at_step = 5});
    scene.complete(scene.history("a", kPrompt));
    const std::vector<TokenId> committed = scene.committed("a");
    scene.submit(scene.suffix("a", iota_tokens(500, 4)));
    ASSERT_FALSE(scene.engine.step());
    HashExecutorHolder fresh{SceneOptions{}};
    scene.engine.replace_executor(fresh.executor);
    EXPECT_TRUE(scene.engine.cache().heads().empty());
    scene.engine.verify();
    EXPECT_EQ(scene.committed("a"), committed);
    const FinishedEvent again = scene.complete(scene.suffix("a", iota_tokens(500, 4)));
    EXPECT_EQ(again.num_reused_tokens, 0);
    EXPECT_EQ(scene.not_reused(NotReused::kLost), 13);
    EXPECT_EQ(scene.streamed(again.request), scene.expected(committed + iota_tokens(500, 4), 4));
    EXPECT_EQ(scene.complete(scene.suffix("a", iota_tokens(600, 1))).num_reused_tokens, 21);
}

// The client has two tokens. The fresh executor draws others: the turn must end, and must not commit. A turn that was
// still in its prompt has nothing that could disagree.
TEST(Streams, ATurnWhoseFreshExecutorDrawsOtherTokensFailsAlone) {
    EngineScene scene({.step_tokens = 12, .fail_at_step = 3});
    const RequestId answered = scene.submit(scene.history("a", kPrompt));
    const RequestId in_prompt = scene.submit(scene.history("b", iota_tokens(300, 60)));
    Result<bool> stepped = true;
    while ((stepped = scene.engine.step())) {
    }
    ASSERT_EQ(stepped.error().message, "step 3: told to fail");
    HashExecutorConfig other{.pools = scene.options.pools()};
    other.draws = 1;
    HashExecutor fresh(other);
    scene.engine.replace_executor(fresh);
    static_cast<void>(scene.engine.take_events());
    const std::vector<FailedTurn> failed = scene.engine.take_failed_turns();
    ASSERT_EQ(failed.size(), 2u);
    EXPECT_EQ(failed[0].request, answered);
    EXPECT_EQ(failed[0].again.known_output, scene.expected(kPrompt, 3));
    EXPECT_EQ(failed[1].request, in_prompt);
    EXPECT_TRUE(failed[1].again.known_output.empty());
    EXPECT_EQ(content_digest(failed[0].again), content_digest(scene.history("a", kPrompt)));
    const FinishedEvent changed = scene.complete(failed[0].again);
    EXPECT_EQ(changed.reason, FinishReason::kAnswerChanged);
    EXPECT_FALSE(changed.committed);
    EXPECT_EQ(changed.num_output_tokens, 0);
    EXPECT_TRUE(scene.streamed(changed.request).empty());
    EXPECT_EQ(scene.engine.ledger().find(scene.key("a")), nullptr);
    EXPECT_TRUE(scene.complete(failed[1].again).committed);
    EXPECT_TRUE(scene.complete(scene.history("a", kPrompt)).committed);
    scene.EngineRig::expect_home();
}

// A turn is computed once for a turn_id, although the first try failed in the middle.
TEST(Streams, ATurnIdOutlivesAFailedStep) {
    EngineScene scene({.fail_at_step = 3});
    ChatRequest request = scene.history("a", kPrompt, 6);
    request.turn_id = "first";
    scene.submit(request);
    while (scene.engine.step()) {
    }
    const std::vector<FailedTurn> failed = scene.engine.take_failed_turns();
    ASSERT_EQ(failed.size(), 1u);
    HashExecutor fresh({.pools = scene.options.pools()});
    scene.engine.replace_executor(fresh);
    static_cast<void>(scene.engine.take_events());
    ASSERT_TRUE(scene.complete(failed[0].again).committed);
    const auto repeated = scene.engine.submit(request);
    ASSERT_TRUE(repeated && repeated->recorded);
    EXPECT_EQ(repeated->recorded->output.to_vector(), scene.expected(kPrompt, 6));
    EXPECT_EQ(scene.engine.stats().commits, 1);
}

TEST(Streams, ASeedIsDrawnOnlyForARequestWithoutOne) {
    std::vector<uint64_t> drawn;
    for (const bool has_seeded : {false, true}) {
        EngineScene scene;
        ChatRequest seeded = scene.history("a", kPrompt);
        seeded.seed = 7;
        if (has_seeded) EXPECT_EQ(scene.complete(seeded).seed, 7u);
        ChatRequest seedless = scene.history("b", kPrompt);
        seedless.seed.reset();
        drawn.push_back(scene.complete(seedless).seed);
    }
    EXPECT_EQ(drawn[0], drawn[1]);
}

// A second failure, before the turn has come as far as it was: what the client has does not become less.
TEST(Streams, AClientsTokensOutliveASecondFailure) {
    EngineScene scene({.fail_at_step = 3});
    scene.submit(scene.history("a", kPrompt, 6));
    while (scene.engine.step()) {
    }
    std::vector<FailedTurn> failed = scene.engine.take_failed_turns();
    ASSERT_EQ(failed.size(), 1u);
    const std::vector<TokenId> had = failed[0].again.known_output;
    EXPECT_EQ(had, scene.expected(kPrompt, 3));
    HashExecutor second({.pools = scene.options.pools(), .fail_at_step = 5});
    scene.engine.replace_executor(second);
    ASSERT_TRUE(scene.engine.submit(failed[0].again));
    while (scene.engine.step()) {
    }
    failed = scene.engine.take_failed_turns();
    ASSERT_EQ(failed.size(), 1u);
    EXPECT_EQ(failed[0].again.known_output, had);
    HashExecutor third({.pools = scene.options.pools()});
    scene.engine.replace_executor(third);
    static_cast<void>(scene.engine.take_events());
    const FinishedEvent event = scene.complete(failed[0].again);
    EXPECT_TRUE(event.committed);
    EXPECT_EQ(scene.streamed(event.request), scene.expected(kPrompt, 6));
}

TEST(Streams, WhatLateStepsFreeComesHomeWithoutAnotherRequest) {
    EngineScene scene({.lag_steps = 3});
    scene.complete(scene.history("a", kPrompt));
    scene.complete(scene.suffix("a", iota_tokens(500, 4)));
    scene.run();
    EXPECT_TRUE(scene.engine.idle());
    EXPECT_EQ(scene.engine.cache().kv().pool().num_fenced(), 0);
    EXPECT_EQ(scene.engine.cache().state().pool().num_fenced(), 0);
    scene.expect_home();
}

TEST(Streams, TwoRunsOfTheSameCallsReportTheSame) {
    const auto digest = [](uint64_t seed) {
        EngineScene scene({.seed = seed});
        ChatRequest request = scene.history("a", kPrompt);
        request.sampling.temperature = 1;
        scene.complete(request);
        scene.complete(scene.suffix("a", iota_tokens(500, 4)));
        DigestRecorder recorder;
        for (const StepPlan& plan : scene.log.plans) recorder.on_plan(plan);
        for (const Event& event : scene.log.events) recorder.on_event(event);
        for (const auto& [id, tokens] : scene.log.tokens) {
            for (const TokenId token : tokens) recorder.on_token(id, token);
        }
        return recorder.digest();
    };
    EXPECT_EQ(digest(1), digest(1));
    EXPECT_NE(digest(1), digest(2));
}

}  // namespace
}  // namespace verbatim::tests
