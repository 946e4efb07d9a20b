// Steps 4 and 5: chunks, budgets, room, preemption, aborts and the materialisation fence, seen from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/engine_scene.h"

namespace verbatim::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

int64_t tokens_of(const StepPlan& plan) {
    int64_t sum = 0;
    for (const ScheduledSequence& sequence : plan.sequences) sum += sequence.num_new_tokens;
    return sum;
}

TEST(Scheduling, AnyChunkingGivesTheSameTokensAndHeads) {
    const std::vector<TokenId> prompt = iota_tokens(100, 37);
    for (int32_t step_tokens = 1; step_tokens <= 38; ++step_tokens) {
        SCOPED_TRACE(step_tokens);
        EngineScene scene({.step_tokens = step_tokens});
        const FinishedEvent event = scene.complete(scene.history("a", prompt));
        EXPECT_EQ(scene.streamed(event.request), scene.expected(prompt, 4));
        EXPECT_EQ(scene.log.plans.size(), static_cast<size_t>((37 + step_tokens - 1) / step_tokens + 4));
        EXPECT_THAT(scene.head_lengths("a", HeadKind::kPrompt), ElementsAre(36));
        scene.expect_home();
    }
}

TEST(Scheduling, AStepNeverExceedsItsTokenBudgetAndServesTheOldestFirst) {
    EngineScene scene({.step_tokens = 7});
    for (const char* id : {"a", "b", "c"}) scene.submit(scene.history(id, kPrompt));
    scene.run();
    for (const StepPlan& plan : scene.log.plans) EXPECT_LE(tokens_of(plan), 7);
    EXPECT_EQ(tokens_of(scene.log.plans.front()), 7);
    const std::vector<EventKind> kinds = {EventKind::kCommit};
    std::vector<RequestId> order;
    for (const Event& event : scene.log.of(kinds.front())) order.push_back(event.request);
    EXPECT_THAT(order, ElementsAre(RequestId{0}, RequestId{1}, RequestId{2}));
    scene.expect_home();
}

// The first request scores all positions that a step may score, so that the second one starts a step after the third.
TEST(Scheduling, ARequestThatStartsBehindYoungerOnesIsNamedBehindThem) {
    EngineScene scene({.num_blocks = 200, .step_tokens = 2048});
    ChatRequest first = scene.history("a", iota_tokens(100, kMaxScoredPositions + 40), 2);
    ChatRequest second = scene.history("b", iota_tokens(500, 30), 2);
    first.scored_from = second.scored_from = 0;
    scene.submit(first);
    const RequestId late = scene.submit(second);
    const RequestId young = scene.submit(scene.history("c", iota_tokens(700, 9), 4));
    scene.step();
    ASSERT_EQ(scene.log.plans.back().new_sequences.size(), 2u);
    EXPECT_EQ(scene.log.plans.back().new_sequences.back().request, young);
    scene.step();
    ASSERT_EQ(scene.log.plans.back().new_sequences.size(), 1u);
    EXPECT_EQ(scene.log.plans.back().new_sequences.back().request, late);
    scene.run();
    EXPECT_EQ(scene.streamed(late), scene.expected(iota_tokens(500, 30), 2));
    EXPECT_EQ(scene.streamed(young), scene.expected(iota_tokens(700, 9), 4));
    scene.expect_home();
}

TEST(Scheduling, ABatchGivesEachRequestItsOutputAlone) {
    EngineScene scene;
    std::vector<RequestId> ids;
    for (int i = 0; i < 5; ++i) {
        ids.push_back(scene.submit(scene.history(std::to_string(i), iota_tokens(100 * i, 3 + i), 2 + i)));
    }
    scene.run();
    EXPECT_EQ(scene.log.plans.front().sequences.size(), 5u);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(scene.streamed(ids[i]), scene.expected(iota_tokens(100 * i, 3 + i), 2 + i));
    scene.expect_home();
}

TEST(Scheduling, NoMoreSequencesRunThanAreAllowed) {
    EngineScene scene({.max_num_sequences = 2});
    for (const char* id : {"a", "b", "c"}) scene.submit(scene.history(id, kPrompt));
    scene.run();
    for (const StepPlan& plan : scene.log.plans) EXPECT_LE(plan.sequences.size(), 2u);
    EXPECT_EQ(scene.engine.stats().commits, 3);
}

TEST(Scheduling, RoomIsMadeByEvictingBeforeByPreempting) {
    EngineScene scene({.num_blocks = 9});
    scene.complete(scene.history("a", kPrompt));
    const FinishedEvent event = scene.complete(scene.history("b", iota_tokens(300, 26)));
    EXPECT_TRUE(event.committed);
    EXPECT_GT(scene.engine.stats().evictions, 0);
    EXPECT_EQ(scene.engine.stats().preemptions, 0);
    scene.expect_home();
}

TEST(Scheduling, ThePreemptedYoungestResumesFromItsNewestHeadInsteadOfFromZero) {
    EngineScene scene({.num_blocks = 14});
    const RequestId oldest = scene.submit(scene.history("a", iota_tokens(100, 17), 23));
    const RequestId youngest = scene.submit(scene.history("b", iota_tokens(300, 13), 20));
    scene.run();
    EXPECT_GT(scene.engine.stats().preemptions, 0);
    for (const Event& event : scene.log.of(EventKind::kPreempt)) EXPECT_EQ(event.request, youngest);
    EXPECT_EQ(scene.streamed(oldest), scene.expected(iota_tokens(100, 17), 23));
    EXPECT_EQ(scene.streamed(youngest), scene.expected(iota_tokens(300, 13), 20));
    std::vector<int64_t> resumed;
    for (const Event& event : scene.log.of(EventKind::kAttach)) {
        if (event.request == youngest) resumed.push_back(event.value);
    }
    ASSERT_GE(resumed.size(), 2u);
    EXPECT_EQ(resumed.back(), 12);  // its prompt head
    EXPECT_GT(scene.engine.stats().recomputed_tokens, 0);
    EXPECT_EQ(scene.engine.stats().computed_prompt_tokens, 17 + 13);  // recomputed ones are counted apart
    scene.expect_home();
}

TEST(Scheduling, TheOldestRunningRequestIsNeverPreempted) {
    EngineScene scene({.num_blocks = 14, .step_tokens = 5});
    std::vector<RequestId> ids;
    for (int i = 0; i < 4; ++i)
        ids.push_back(scene.submit(scene.history(std::to_string(i), iota_tokens(100 * i, 21), 20)));
    while (!scene.engine.idle()) {
        const auto& running = scene.engine.scheduler().running();
        const RequestId oldest = running.empty() ? RequestId{-1} : running.front()->id;
        const size_t before = scene.log.events.size();
        scene.step();
        for (size_t i = before; i < scene.log.events.size(); ++i) {
            const Event& event = scene.log.events[i];
            EXPECT_FALSE(event.kind == EventKind::kPreempt && event.request == oldest);
        }
    }
    EXPECT_GT(scene.engine.stats().preemptions, 0);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(scene.streamed(ids[i]), scene.expected(iota_tokens(100 * i, 21), 20));
    scene.expect_home();
}

TEST(Scheduling, WithOneStateRowAHeadGivesWayAndTheReasonIsSaid) {
    EngineScene scene({.num_state_rows = 1});
    scene.complete(scene.history("a", kPrompt));
    const std::vector<TokenId> before = scene.committed("a");
    const FinishedEvent event = scene.complete(scene.suffix("a", iota_tokens(500, 3)));
    EXPECT_EQ(event.num_reused_tokens, 0);
    EXPECT_EQ(scene.not_reused(NotReused::kNoRoomToCopy), 13);
    EXPECT_EQ(scene.streamed(event.request), scene.expected(before + iota_tokens(500, 3), 4));
    EXPECT_GT(scene.engine.stats().snapshots_without_room, 0);
    scene.expect_home();
}

TEST(Scheduling, ASequenceWaitsForARowThatARunningOneHolds) {
    EngineScene scene({.num_state_rows = 1});
    const RequestId first = scene.submit(scene.history("a", kPrompt));
    const RequestId second = scene.submit(scene.history("b", kPrompt));
    scene.run();
    EXPECT_LT(scene.finished(first).step, scene.finished(second).step);
    EXPECT_TRUE(scene.finished(second).committed);
    scene.expect_home();
}

TEST(Scheduling, AModelWithoutAttentionAndOneWithoutStateRunTheSame) {
    for (const SceneOptions& options : {SceneOptions{.num_blocks = 0}, SceneOptions{.num_state_rows = 0}}) {
        EngineScene scene(options);
        scene.complete(scene.history("a", kPrompt));
        const std::vector<TokenId> before = scene.committed("a");
        const FinishedEvent event = scene.complete(scene.suffix("a", iota_tokens(500, 3)));
        EXPECT_EQ(event.num_reused_tokens, 13);
        EXPECT_EQ(scene.engine.stats().tail_copies, options.num_blocks > 0 ? 1 : 0);
        EXPECT_EQ(scene.engine.stats().state_copies, options.num_state_rows > 0 ? 1 : 0);
        EXPECT_EQ(scene.streamed(event.request), scene.expected(before + iota_tokens(500, 3), 4));
        scene.expect_home();
    }
}

// Aborts request "a"'s second turn after `num_steps`, with the next step open or not.
void abort_after(int num_steps, bool open, int32_t lag_steps) {
    SCOPED_TRACE(fmt::format("after {} steps, open {}, lag {}", num_steps, open, lag_steps));
    EngineScene scene({.step_tokens = 3, .lag_steps = lag_steps});
    const FinishedEvent first = scene.complete(scene.history("a", kPrompt));
    const Digest digest = scene.engine.cache().find(first.head)->digest;
    const std::vector<TokenId> before = scene.committed("a");
    const RequestId id = scene.submit(scene.suffix("a", iota_tokens(500, 7), 5));
    for (int i = 0; i < num_steps; ++i) scene.step();
    ASSERT_FALSE(scene.is_finished(id));
    if (open) {
        const StepPlan& plan = scene.engine.plan_step();
        scene.abort(id);
        StepResult result;
        ASSERT_TRUE(scene.executor.execute(plan, result));
        scene.engine.apply(result);
    } else {
        scene.abort(id);
    }
    scene.run();
    EXPECT_EQ(scene.finished(id).reason, FinishReason::kAborted);
    EXPECT_FALSE(scene.finished(id).committed);
    EXPECT_FALSE(scene.engine.abort(id));
    EXPECT_EQ(scene.committed("a"), before);
    ASSERT_NE(scene.engine.cache().find(first.head), nullptr);
    EXPECT_EQ(scene.engine.cache().find(first.head)->digest, digest);
    EXPECT_EQ(scene.engine.cache().state().pool().num_used(),
              static_cast<int32_t>(scene.engine.cache().heads().size()));
    scene.expect_home();
    EXPECT_GE(scene.complete(scene.suffix("a", iota_tokens(600, 2))).num_reused_tokens, 13);
}

TEST(Scheduling, AbortAtEveryStepBoundaryKeepsTheOldHeadAndGivesEverythingBack) {
    for (const int32_t lag_steps : {0, 2}) {
        for (int num_steps = 0; num_steps <= 6; ++num_steps) {
            abort_after(num_steps, false, lag_steps);
            if (num_steps < 6) abort_after(num_steps, true, lag_steps);
        }
    }
}

TEST(Scheduling, AnAbortWhileTheTurnWaitsForItsBytesKeepsTheOldHead) {
    EngineScene scene({.lag_steps = 3});
    const RequestId id = scene.submit(scene.history("a", kPrompt, 1));
    scene.step();
    ASSERT_EQ(scene.engine.find(id)->status, SequenceStatus::kCommitting);
    scene.abort(id);
    scene.run();
    EXPECT_FALSE(scene.finished(id).committed);
    EXPECT_THAT(scene.committed("a"), IsEmpty());
    EXPECT_THAT(scene.head_lengths("a", HeadKind::kTurn), IsEmpty());
    EXPECT_THAT(scene.head_lengths("a", HeadKind::kPrompt), ElementsAre(9));
    scene.expect_home();
}

TEST(Scheduling, NothingIsPublishedBeforeItsBytesAreMaterialised) {
    for (int32_t lag_steps = 0; lag_steps <= 3; ++lag_steps) {
        SCOPED_TRACE(lag_steps);
        EngineScene scene({.lag_steps = lag_steps});
        const FinishedEvent event = scene.complete(scene.history("a", kPrompt));
        EXPECT_EQ(event.step, 3 + lag_steps);
        for (const Event& published : scene.log.of(EventKind::kPublish)) {
            const int64_t written = published.value == 9 ? 0 : 3;
            EXPECT_EQ(published.step, written + lag_steps);
        }
        scene.expect_home();
    }
}

TEST(Scheduling, AnAttachedHeadIsPinnedUntilItsCopiesAreMaterialised) {
    EngineScene scene({.lag_steps = 2});
    const FinishedEvent first = scene.complete(scene.history("a", kPrompt));
    scene.submit(scene.suffix("a", iota_tokens(500, 3), 8));
    std::vector<int64_t> pins;
    for (int i = 0; i < 4; ++i) {
        scene.step();
        pins.push_back(scene.engine.cache().num_pins(first.head));
    }
    EXPECT_THAT(pins, ElementsAre(1, 1, 0, 0));
    scene.run();
    scene.expect_home();
}

TEST(Scheduling, SeveralTurnsAttachToOneHeadAtOnceAndNoneChangesIt) {
    EngineScene scene;
    const FinishedEvent first = scene.complete(scene.history("a", kPrompt));
    const Digest digest = scene.engine.cache().find(first.head)->digest;
    for (const char* to : {"b", "c", "d"}) ASSERT_TRUE(scene.engine.fork(scene.key("a"), to));
    const std::vector<TokenId> before = scene.committed("a");
    std::vector<RequestId> ids;
    for (const char* id : {"a", "b", "c", "d"}) ids.push_back(scene.submit(scene.suffix(id, {TokenId{id[0]}}, 6)));
    scene.run();
    EXPECT_EQ(scene.engine.stats().tail_copies, 4);
    for (size_t i = 0; i < ids.size(); ++i) {
        EXPECT_EQ(scene.finished(ids[i]).num_reused_tokens, 13);
        EXPECT_EQ(scene.streamed(ids[i]), scene.expected(before + std::vector<TokenId>{TokenId("abcd"[i])}, 6));
    }
    const Head* head = scene.engine.cache().find(first.head);
    EXPECT_EQ(*scene.executor.head_digest(
                  {kNoSlot, head->length(), scene.engine.cache().kv().runs(head->blocks), head->state}),
              digest);
    scene.expect_home();
}

TEST(Scheduling, CheckpointsAreTheFirstMessageEndAndTheNewest) {
    EngineScene scene({.max_checkpoints = 3, .keep_checkpoints = 9});
    ChatRequest request = scene.history("a", {1, 2});
    for (TokenId i = 2; i <= 7; ++i) request.messages.push_back({scene.store.store(iota_tokens(10 * i, 2)), true});
    scene.complete(request);
    EXPECT_THAT(scene.head_lengths("a", HeadKind::kCheckpoint), ElementsAre(2, 10, 12));
    EXPECT_THAT(scene.head_lengths("a", HeadKind::kPrompt), ElementsAre(13));
    scene.expect_home();
}

// --- admission from a full cache

// Every block and row is held by heads of conversations that are over.
void fill_with_idle_heads(EngineScene& scene) {
    for (int i = 0; scene.engine.cache().kv().pool().num_free() > 0; ++i) {
        scene.complete(scene.history(fmt::format("idle{}", i), iota_tokens(i, 7), 1));
    }
}

TEST(Scheduling, AFullCacheAdmitsAsManyAsTheTokenBudgetAllowsInOneStep) {
    EngineScene scene({.num_blocks = 160, .num_state_rows = 200, .step_tokens = 32 * 10});
    fill_with_idle_heads(scene);
    std::vector<RequestId> ids;
    for (int i = 0; i < 32; ++i) ids.push_back(scene.submit(scene.history(fmt::format("r{}", i), kPrompt)));
    scene.step();
    EXPECT_EQ(scene.engine.scheduler().scheduled().size(), 32u);
    EXPECT_EQ(scene.engine.stats().steps_without_room, 0);
    EXPECT_GE(scene.engine.stats().evictions, 32);
    scene.run();
    for (const RequestId id : ids) EXPECT_EQ(scene.streamed(id), scene.expected(kPrompt, 4));
    scene.expect_home();
}

TEST(Scheduling, AFullStatePoolAdmitsAsManyAsTheTokenBudgetAllowsInOneStep) {
    EngineScene scene({.num_blocks = 2000, .num_state_rows = 40, .step_tokens = 32 * 10});
    for (int i = 0; i < 40; ++i) scene.complete(scene.history(fmt::format("idle{}", i), iota_tokens(i, 7), 1));
    EXPECT_EQ(scene.engine.cache().state().pool().num_free(), 0);
    for (int i = 0; i < 32; ++i) scene.submit(scene.history(fmt::format("r{}", i), kPrompt));
    scene.step();
    EXPECT_EQ(scene.engine.scheduler().scheduled().size(), 32u);
    scene.run();
    scene.expect_home();
}

// D5: the first of two requests makes room among idle heads, and not by evicting what the second is about to attach to.
TEST(Scheduling, AHeadThatAWaitingRequestWillAttachToIsNotEvictedForAnother) {
    EngineScene scene({.num_blocks = 24, .num_state_rows = 16, .step_tokens = 40});
    const FinishedEvent oldest = scene.complete(scene.history("a", iota_tokens(0, 21), 2));  // 6 blocks
    scene.complete(scene.history("b", iota_tokens(300, 41), 2));                             // 11 blocks
    const RequestId stranger = scene.submit(scene.history("c", iota_tokens(600, 37), 2));
    const RequestId next = scene.submit(scene.suffix("a", iota_tokens(900, 3), 2));
    scene.run();
    EXPECT_EQ(scene.finished(stranger).num_reused_tokens, 0);
    EXPECT_EQ(scene.finished(next).num_reused_tokens, 22);
    EXPECT_EQ(scene.engine.stats().attaches, 1);
    EXPECT_NE(oldest.head, kNoHead);
    EXPECT_TRUE(scene.head_lengths("b", HeadKind::kTurn).empty());
    scene.expect_home();
}

TEST(Scheduling, WhatAnEvictedHeadLeavesIsUsedInTheSameStepAlsoUnderALag) {
    for (const int32_t lag : {0, 1, 3}) {
        SCOPED_TRACE(lag);
        EngineScene scene({.num_blocks = 8, .num_state_rows = 3, .lag_steps = lag});
        scene.complete(scene.history("idle", iota_tokens(0, 25), 1));
        const RequestId request = scene.submit(scene.history("a", iota_tokens(50, 25), 1));
        scene.step();
        EXPECT_EQ(scene.engine.scheduler().scheduled().size(), 1u);
        scene.run();
        EXPECT_EQ(scene.streamed(request), scene.expected(iota_tokens(50, 25), 1));
        scene.expect_home();
    }
}

// The younger request's prompt is what the older one generates. It is preempted in the middle, and goes on from the
// older one's turn: it reuses what it had attached before and what it had not computed, and no more.
TEST(Scheduling, AResumedRequestCountsAsReusedOnlyWhatItHadNotComputed) {
    EngineScene scene({.num_blocks = 20, .step_tokens = 2, .lookup = LookupMode::kPrefix});
    const std::vector<TokenId> text = iota_tokens(100, 16);
    const RequestId older = scene.submit(scene.history("a", text, 40));
    const std::vector<TokenId> longer = text + scene.expected(text, 40) + iota_tokens(400, 4);
    const RequestId younger = scene.submit(scene.history("b", longer, 2));
    scene.run();
    std::vector<int64_t> attached;
    for (const Event& event : scene.log.of(EventKind::kAttach))
        if (event.request == younger) attached.push_back(event.value);
    const std::vector<int64_t> computed = scene.log.values(EventKind::kPreempt);
    ASSERT_THAT(attached, ElementsAre(15, 55));
    ASSERT_EQ(computed.size(), 1u);
    ASSERT_TRUE(computed[0] > 16 && computed[0] < 55) << computed[0];
    EXPECT_EQ(scene.finished(younger).num_reused_tokens, 15 + 55 - computed[0]);
    EXPECT_EQ(scene.engine.stats().reused_tokens,
              scene.finished(older).num_reused_tokens + scene.finished(younger).num_reused_tokens);
    scene.expect_home();
}

TEST(Scheduling, APreemptedTurnWhosePromptHeadWasEvictedPublishesItAgain) {
    EngineScene scene({.num_blocks = 16, .num_state_rows = 8});
    const RequestId older = scene.submit(scene.history("a", iota_tokens(0, 9), 50));
    const RequestId younger = scene.submit(scene.history("b", iota_tokens(100, 9), 30));
    scene.run();
    EXPECT_GT(scene.engine.stats().preemptions, 0);
    EXPECT_TRUE(scene.is_finished(older) && scene.is_finished(younger));
    EXPECT_THAT(scene.log.values(EventKind::kEvict), ::testing::Contains(8));  // b's prompt head
    EXPECT_THAT(scene.head_lengths("b", HeadKind::kPrompt), ElementsAre(8));
    scene.expect_home();
}

TEST(Scheduling, AWriterThatLostItsLeaseGetsTheReason) {
    EngineScene scene;
    const RequestId request = scene.submit(scene.history("a", kPrompt));
    scene.step();
    ASSERT_TRUE(scene.engine.revoke(scene.key("a")));
    scene.run();
    EXPECT_EQ(scene.finished(request).reason, FinishReason::kLeaseLost);
    EXPECT_FALSE(scene.finished(request).committed);
}

}  // namespace
}  // namespace verbatim::tests
