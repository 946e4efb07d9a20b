// Requests whose tokens are sampled under masks: what is computed without one, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "tests/support/engine_scene.h"
#include "tests/support/token_grammar.h"

namespace verbatim::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kGrammar = 5;

std::vector<int32_t> runs_in(const StepPlan& plan, size_t sequence) {
    const auto runs = plan.mask_of(plan.sequences.at(sequence));
    return {runs.begin(), runs.end()};
}

class Masks : public ::testing::Test {
protected:
    [[nodiscard]] ChatRequest request(const std::string& id, int64_t max_tokens) {
        return with_grammar(scene.history(id, kPrompt, max_tokens), kGrammar, vocab_size());
    }
    [[nodiscard]] int32_t vocab_size() const { return scene.store.vocab_size(); }
    [[nodiscard]] TokenMask mask_behind(RequestId id) {
        return grammar_mask(kGrammar, scene.log.tokens[id], vocab_size());
    }
    EngineScene scene;
};

TEST_F(Masks, EachTokenIsSampledUnderItsOwnMask) {
    const RequestId id = scene.submit(request("a", 3));
    std::vector<TokenMask> wanted;
    while (scene.engine.find(id) != nullptr && scene.log.tokens[id].size() < 3) {
        wanted.push_back(mask_behind(id));
        scene.step();
        EXPECT_EQ(runs_in(scene.log.plans.back(), 0), wanted.back().runs);
        supply_masks(scene.engine);
    }
    scene.run();
    EXPECT_EQ(wanted.size(), 3U);
    EXPECT_EQ(scene.finished(id).reason, FinishReason::kLength);
    scene.expect_home();
}

TEST_F(Masks, WithoutItsMaskARequestIsInNoStepAndOthersAre) {
    const RequestId id = scene.submit(request("a", 3));
    const RequestId free = scene.submit(scene.history("b", kPrompt, 6));
    scene.step();
    EXPECT_FALSE(scene.engine.scheduler().waits_for_masks());
    scene.step();
    EXPECT_EQ(scene.log.plans.back().sequences.size(), 1U);
    EXPECT_EQ(scene.log.tokens[id].size(), 1U);
    EXPECT_EQ(scene.log.tokens[free].size(), 2U);
    while (!scene.is_finished(free)) scene.step();
    scene.step();  // the slot's end
    EXPECT_TRUE(scene.engine.scheduler().waits_for_masks());
    EXPECT_FALSE(scene.engine.idle());
    EXPECT_TRUE(scene.engine.allow(id, mask_behind(id)));
    scene.step();
    EXPECT_EQ(scene.log.tokens[id].size(), 2U);
    scene.abort(id);
    scene.run();
    scene.expect_home();
}

// Of a chunk, all but the position that samples.
TEST_F(Masks, WhatWasPreemptedComputesUpToTheTokenThatLacksItsMask) {
    EngineScene small({.num_blocks = 9, .step_tokens = 64});
    const RequestId old = small.submit(small.history("old", kPrompt, 20));
    const RequestId id = small.submit(with_grammar(small.history("a", kPrompt, 8), kGrammar, vocab_size()));
    while (small.log.of(EventKind::kPreempt).empty()) {
        const bool more_than_one = small.log.tokens[id].size() < 4;
        if (more_than_one) supply_masks(small.engine);
        small.step();
    }
    const size_t num_tokens = small.log.tokens[id].size();
    while (!small.is_finished(old)) small.step();
    for (int i = 0; i < 3; ++i) small.step();
    EXPECT_EQ(small.log.tokens[id].size(), num_tokens);
    const Sequence& sequence = *small.engine.find(id);
    EXPECT_EQ(sequence.num_computed_tokens, sequence.num_tokens() - 1);
    for (int i = 0; i < 20 && !small.is_finished(id); ++i) {
        supply_masks(small.engine);
        small.step();
    }
    small.run();
    EXPECT_EQ(small.finished(id).num_output_tokens, 8);
    small.expect_home();
}

// Where its mask may come late, a request is in the step, and the plan is reported as if the mask had come before.
TEST_F(Masks, ALateMaskCompletesThePlanOfTheOpenStep) {
    const RequestId id = scene.submit(request("a", 3));
    scene.step();
    scene.engine.expect_late_masks(id, true);
    EXPECT_FALSE(scene.engine.scheduler().waits_for_masks());
    const size_t num_plans = scene.log.plans.size();
    const StepPlan& plan = scene.engine.plan_step();
    ASSERT_TRUE(scene.engine.lacks_masks());
    ASSERT_EQ(plan.sequences.size(), 1U);
    EXPECT_EQ(plan.sequences[0].num_sampled_positions, 1);
    EXPECT_THAT(runs_in(plan, 0), ElementsAre());
    EXPECT_EQ(scene.log.plans.size(), num_plans);
    const TokenMask wanted = mask_behind(id);
    EXPECT_FALSE(scene.engine.allow(id, {}));
    EXPECT_TRUE(scene.engine.lacks_masks());
    EXPECT_TRUE(scene.engine.allow(id, wanted));
    EXPECT_FALSE(scene.engine.lacks_masks());
    EXPECT_EQ(runs_in(plan, 0), wanted.runs);
    ASSERT_EQ(scene.log.plans.size(), num_plans + 1);
    EXPECT_EQ(scene.log.plans.back(), plan);
    StepResult result;
    ASSERT_TRUE(scene.executor.execute(plan, result));
    scene.engine.apply(result);
    EXPECT_EQ(scene.log.tokens[id].size(), 2U);
    scene.engine.expect_late_masks(id, false);
    scene.step();
    EXPECT_EQ(scene.log.tokens[id].size(), 2U);
    scene.abort(id);
    scene.run();
    scene.expect_home();
}

TEST_F(Masks, ARequestWithAGrammarIsNotDrafted) {
    EngineScene windows({.max_window = 4, .verify_tokens = 8, .two_arithmetics = true});
    const RequestId id = windows.submit(with_grammar(windows.history("a", kPrompt, 6), kGrammar, vocab_size()));
    for (int i = 0; i < 30 && !windows.is_finished(id); ++i) {
        windows.step();
        supply_masks(windows.engine);
    }
    EXPECT_EQ(windows.finished(id).num_output_tokens, 6);
    EXPECT_EQ(windows.engine.stats().drafted_tokens, 0);
    EXPECT_EQ(windows.engine.stats().draft_path_tokens, 0);
}

TEST_F(Masks, AMaskForNoRequestOrOfNoTokensIsDropped) {
    EXPECT_FALSE(scene.engine.allow(RequestId{7}, {{0, 1}}));
    const RequestId free = scene.submit(scene.history("b", kPrompt, 2));
    EXPECT_FALSE(scene.engine.allow(free, {{0, 1}}));
    const RequestId id = scene.submit(request("a", 2));
    EXPECT_FALSE(scene.engine.allow(id, {}));
    EXPECT_FALSE(scene.engine.allow(id, {{0, vocab_size() + 1}}));
    EXPECT_TRUE(scene.engine.allow(id, {{0, vocab_size()}}));
    scene.run();
    EXPECT_EQ(scene.finished(id).num_output_tokens, 2);
}

TEST_F(Masks, AGrammarNeedsAMaskAndAnEnd) {
    const auto problem = [&](const ChatRequest& wrong) {
        const Status valid = validate(wrong, vocab_size());
        return valid ? "" : valid.error().message;
    };
    ChatRequest wrong = request("a", 2);
    EXPECT_EQ(problem(wrong), "");
    wrong.ignore_stop = true;
    EXPECT_THAT(problem(wrong), HasSubstr("grammar: not with ignore_stop"));
    wrong = request("a", 2);
    wrong.forced_output = scene.store.store(kPrompt);
    EXPECT_THAT(problem(wrong), HasSubstr("grammar: not with forced_output"));
    wrong = request("a", 2);
    wrong.masks = {{{3, 0}}};
    EXPECT_THAT(problem(wrong), HasSubstr("masks: one allows no token"));
    wrong.masks.clear();
    EXPECT_THAT(problem(wrong), HasSubstr("masks: 0 of them with a grammar"));
    wrong = scene.history("a", kPrompt);
    wrong.masks = {{{0, 1}}};
    EXPECT_THAT(problem(wrong), HasSubstr("masks: 1 of them without a grammar"));
}

// Another grammar is another question.
TEST_F(Masks, TheGrammarIsOfTheRequestsContent) {
    const ChatRequest one = request("a", 2);
    ChatRequest other = one;
    other.grammar = "6";
    EXPECT_NE(content_digest(one), content_digest(other));
    other = one;
    other.masks.push_back({{0, 1}});  // known by now
    EXPECT_EQ(content_digest(one), content_digest(other));
}

// Of two requests with grammars one computes a part of its prompt, and samples nothing.
TEST_F(Masks, ALateMaskIsOfTheRequestThatSamples) {
    EngineScene small({.step_tokens = 10});
    const RequestId id = small.submit(with_grammar(small.history("a", kPrompt, 3), kGrammar, vocab_size()));
    small.step();
    small.engine.expect_late_masks(id, true);
    small.submit(with_grammar(small.history("b", iota_tokens(300, 30), 3), kGrammar, vocab_size()));
    const StepPlan& plan = small.engine.plan_step();
    ASSERT_EQ(plan.sequences.size(), 2U);
    const TokenMask wanted = grammar_mask(kGrammar, small.log.tokens[id], vocab_size());
    ASSERT_TRUE(small.engine.allow(id, wanted));
    EXPECT_EQ(runs_in(plan, 0), wanted.runs);
    EXPECT_THAT(runs_in(plan, 1), ElementsAre());
    small.engine.fail_step();
}

TEST_F(Masks, AMaskOfATurnThatIsOverIsDropped) {
    EngineScene lag({.lag_steps = 3});
    const RequestId id = lag.submit(with_grammar(lag.history("a", kPrompt, 1), kGrammar, vocab_size()));
    lag.step();
    ASSERT_EQ(lag.engine.find(id)->status, SequenceStatus::kCommitting);
    EXPECT_FALSE(lag.engine.allow(id, {{0, 1}}));
    EngineScene row({.max_state_lag_tokens = 20});
    const RequestId ending = row.submit(with_grammar(row.history("a", kPrompt, 9), kGrammar, vocab_size()));
    row.step();
    ASSERT_EQ(supply_masks(row.engine), 1);
    row.step();
    ASSERT_TRUE(row.engine.end_turn(ending));
    ASSERT_TRUE(row.engine.find(ending)->ending.has_value()) << "its row is to move";
    EXPECT_FALSE(row.engine.allow(ending, {{0, 1}}));
    row.run();
    EXPECT_TRUE(row.finished(ending).committed);
}

}  // namespace
}  // namespace verbatim::tests
