// Deterministic requests together with ordinary ones: drafts along a path in ordinary arithmetic, windows that verify.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/engine_scene.h"

namespace verbatim::tests {
namespace {

using ::testing::ElementsAre;

SceneOptions verifying(uint64_t wrong_draft_one_in = 0) {
    return {.max_window = 4, .verify_tokens = 8, .wrong_draft_one_in = wrong_draft_one_in};
}

// Draws of a plan's sequences in this arithmetic.
std::vector<int32_t> draws(const StepPlan& plan, Arithmetic arithmetic) {
    std::vector<int32_t> of;
    for (const ScheduledSequence& sequence : plan.sequences) {
        if (sequence.arithmetic == arithmetic) of.push_back(sequence.num_sampled_positions);
    }
    return of;
}

size_t num_starts(const RunLog& log) {
    size_t count = 0;
    for (const StepPlan& plan : log.plans) count += plan.new_sequences.size();
    return count;
}

TEST(DraftPaths, AWindowIsDraftedTokenByTokenAndVerifiedAtOnce) {
    EngineScene scene(verifying());
    const RequestId id = scene.submit(scene.history("a", kPrompt, 9));
    scene.run();
    const auto& plans = scene.log.plans;
    ASSERT_GE(plans.size(), 9u);
    EXPECT_THAT(draws(plans[0], Arithmetic::kDeterministic), ElementsAre(1));  // the prompt, and T0
    for (size_t first = 1; first <= 5; first += 4) {                           // T1 to T4, T5 to T8
        for (size_t step = first; step < first + 3; ++step) {
            EXPECT_THAT(draws(plans[step], Arithmetic::kOrdinary), ElementsAre(1)) << step;
            EXPECT_THAT(draws(plans[step], Arithmetic::kDeterministic), ElementsAre()) << step;
        }
        EXPECT_THAT(draws(plans[first + 3], Arithmetic::kDeterministic), ElementsAre(4));
        EXPECT_THAT(draws(plans[first + 3], Arithmetic::kOrdinary), ElementsAre());
    }
    EXPECT_EQ(scene.streamed(id), scene.expected(kPrompt, 9));
    EXPECT_EQ(num_starts(scene.log), 2u) << "an accepted window leaves the path as it is";
    EXPECT_EQ(scene.engine.stats().accepted_tokens, 6);
    EXPECT_EQ(scene.engine.stats().rolled_back_tokens, 0);
    scene.expect_home();
}

TEST(DraftPaths, ADisagreementEndsThePathAndKeepsTheVerifiersToken) {
    EngineScene scene(verifying(1));  // every draft is wrong
    const RequestId id = scene.submit(scene.history("a", kPrompt, 6));
    scene.run();
    EXPECT_EQ(scene.streamed(id), scene.expected(kPrompt, 6));
    const EngineStats& stats = scene.engine.stats();
    EXPECT_EQ(stats.accepted_tokens, 0);
    EXPECT_EQ(stats.drafted_tokens, 3 + 3 + 2 + 1) << "no draft lies behind max_tokens";
    EXPECT_EQ(stats.windows, 4) << "the last token has nothing to draft";
    // A last draft that is wrong was never fed: with one draft the path goes on.
    EXPECT_EQ(num_starts(scene.log), 1u + 4u);
    scene.expect_home();
}

// Behind drafts that were accepted and others that were not, the row stands at what was known before: so does the path.
TEST(DraftPaths, APathBranchesOffWhereTheRowStands) {
    EngineScene scene(verifying(4));
    const RequestId id = scene.submit(scene.history("a", kPrompt, 60));
    scene.run();
    EXPECT_EQ(scene.streamed(id), scene.expected(kPrompt, 60));
    EXPECT_GT(scene.engine.stats().accepted_tokens, 0);
    EXPECT_GT(scene.engine.stats().rolled_back_tokens, 0);
    EXPECT_TRUE(std::ranges::any_of(scene.log.plans, [](const StepPlan& plan) {
        return plan.sequences.size() == 1 && plan.sequences.front().num_sampled_positions == 1 &&
               plan.new_sequences.size() == 1 && plan.sequences.front().num_new_tokens > 1 &&
               plan.new_sequences.front().num_computed_tokens > 10;
    })) << "no path took accepted drafts in again";
    scene.expect_home();
}

TEST(DraftPaths, OrdinaryRequestsAreComputedInEveryStepAndVerifyingHasItsShare) {
    for (const int32_t verify_tokens : {8, 512}) {
        SceneOptions options{.num_blocks = 200, .num_state_rows = 40, .max_window = 4};
        options.verify_tokens = verify_tokens;
        EngineScene scene(options);
        for (int i = 0; i < 6; ++i) {
            ChatRequest request = scene.history("d" + std::to_string(i), kPrompt, 20);
            request.messages.front().tokens.append(scene.store.store(std::vector<TokenId>{i}));
            scene.submit(std::move(request));
        }
        ChatRequest ordinary = scene.history("o", kPrompt, 20);
        ordinary.deterministic = false;
        const RequestId id = scene.submit(std::move(ordinary));
        int64_t most_verified = 0;
        for (size_t steps = 1; scene.engine.find(id) != nullptr && scene.step(); ++steps) {
            EXPECT_EQ(scene.streamed(id).size(), std::min<size_t>(steps, 20)) << "a token in every step";
            int64_t verified = 0;
            for (const ScheduledSequence& sequence : scene.log.plans.back().sequences) {
                if (sequence.num_sampled_positions > 1) verified += sequence.num_new_tokens;
            }
            most_verified = std::max(most_verified, verified);
        }
        // A rival without a share verifies all of them at once: the step that the ordinary request would wait for.
        EXPECT_EQ(most_verified, verify_tokens == 8 ? 8 : 24);
        scene.run();
        scene.expect_home();
    }
}

// A share of one token: no window has a draft, and the two requests take turns behind their prompts.
TEST(DraftPaths, AShareOfOneTokenVerifiesOneRequestAStep) {
    EngineScene scene({.max_window = 4, .verify_tokens = 1});
    for (const char* id : {"a", "b"}) scene.submit(scene.history(id, kPrompt, 4));
    scene.run();
    std::vector<size_t> shares;
    for (const StepPlan& plan : scene.log.plans) shares.push_back(plan.sequences.size());
    EXPECT_THAT(shares, ElementsAre(2, 1, 1, 1, 1, 1, 1, 0));
    EXPECT_EQ(scene.engine.stats().drafted_tokens, 0);
    scene.expect_home();
}

TEST(DraftPaths, NoRequestIsPreemptedForADraft) {
    std::vector<EngineStats> stats;
    for (const int32_t verify_tokens : {0, 8}) {
        SceneOptions options{.num_blocks = 22, .num_state_rows = 5, .max_window = 4};
        options.verify_tokens = verify_tokens;
        EngineScene scene(options);
        for (int i = 0; i < 4; ++i) scene.submit(scene.history("d" + std::to_string(i), kPrompt, 12));
        scene.run();
        scene.expect_home();
        stats.push_back(scene.engine.stats());
    }
    EXPECT_GT(stats[1].draft_path_tokens, 0);
    EXPECT_LE(stats[1].preemptions, stats[0].preemptions);
    EXPECT_LE(stats[1].recomputed_tokens, stats[0].recomputed_tokens);
    EXPECT_EQ(stats[1].commits, 4);
}

TEST(DraftPaths, BehindAStopTokenNothingIsDrafted) {
    EngineScene scene(verifying());
    const std::vector<TokenId> right = scene.expected(kPrompt, 8);
    ChatRequest request = scene.history("a", kPrompt, 8);
    request.stop_tokens = {right[2]};
    const RequestId id = scene.submit(std::move(request));
    scene.run();
    EXPECT_EQ(scene.finished(id).reason, FinishReason::kStopToken);
    EXPECT_EQ(scene.finished(id).num_output_tokens, 3);
    EXPECT_EQ(scene.engine.stats().drafted_tokens, 2);
    scene.expect_home();
}

// The path meets the fault behind T2; behind T3 the window does first.
TEST(DraftPaths, AFaultOnThePathIsTheRequestsOnlyIfItsOwnArithmeticMeetsItToo) {
    const std::vector<TokenId> right = EngineScene().expected(kPrompt, 8);
    for (const size_t last : {2, 3}) {
        SceneOptions options = verifying();
        options.fault_token = right[last];
        EngineScene scene(options);
        const RequestId id = scene.submit(scene.history("a", kPrompt, 8));
        bool is_on_path = false;
        while (!scene.is_finished(id) && scene.step()) {
            const Sequence* sequence = scene.engine.find(id);
            if (sequence == nullptr || !sequence->drafts_end) continue;
            is_on_path = true;
            EXPECT_FALSE(sequence->draft_path) << "it would hold memory, and drafts nothing more";
        }
        EXPECT_EQ(is_on_path, last == 2);
        scene.run();
        EXPECT_EQ(scene.finished(id).reason, FinishReason::kNonFinite);
        EXPECT_EQ(scene.finished(id).num_output_tokens, static_cast<int64_t>(last) + 1);
        scene.expect_home();
    }
}

TEST(DraftPaths, AnAbortInTheOpenStepOfADraftBringsEverythingHome) {
    EngineScene scene(verifying());
    const RequestId id = scene.submit(scene.history("a", kPrompt, 8));
    scene.step();
    scene.step();
    const StepPlan& plan = scene.engine.plan_step();
    ASSERT_THAT(draws(plan, Arithmetic::kOrdinary), ElementsAre(1));
    StepResult result;
    ASSERT_TRUE(scene.executor.execute(plan, result));
    scene.abort(id);
    scene.engine.apply(result);
    scene.run();
    scene.expect_home();
}

// The path's start reads the request's row and tail: they are free only when that step has come back.
TEST(DraftPaths, TheStartOfAPathFencesWhatItReads) {
    SceneOptions options = verifying();
    options.lag_steps = 2;
    EngineScene scene(options);
    const RequestId id = scene.submit(scene.history("a", iota_tokens(100, 11), 8));
    scene.step();
    scene.step();
    ASSERT_THAT(draws(scene.log.plans.back(), Arithmetic::kOrdinary), ElementsAre(1));
    const int64_t started = scene.log.plans.back().step;
    scene.abort(id);
    const auto num_fenced = [&] {
        return scene.engine.cache().state().pool().num_fenced() + scene.engine.cache().kv().pool().num_fenced();
    };
    const int32_t left = num_fenced();
    EXPECT_GE(left, 3);
    scene.submit(scene.history("b", iota_tokens(500, 40), 8));
    for (int64_t step = started + 1; step - options.lag_steps < started; ++step) {
        scene.step();
        EXPECT_EQ(num_fenced(), left) << "after step " << step;
    }
    scene.step();
    EXPECT_EQ(num_fenced(), 0);
    scene.run();
    scene.expect_home();
}

}  // namespace
}  // namespace verbatim::tests
