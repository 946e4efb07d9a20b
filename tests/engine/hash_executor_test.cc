// The executor that tests of the engine lean on: every mistake a plan can carry is seen.
#include "tests/support/hash_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/plan_builder.h"

namespace verbatim::tests {
namespace {

using ::testing::HasSubstr;

constexpr HashExecutorConfig kLenient{
    .vocab_size = 1000, .pools = {.block_size = 4, .num_blocks = 64, .num_state_rows = 16}, .fail_on_violation = false};
const std::vector<TokenId> kTokens{5, 9, 2, 7, 7, 1, 3, 8, 4, 6};

std::vector<TokenId> with(std::vector<TokenId> tokens, TokenId last) {
    tokens.push_back(last);
    return tokens;
}

// Runs plans and keeps the last result.
struct Scene {
    explicit Scene(HashExecutorConfig config = kLenient) : executor(std::move(config)) {}

    Status step() { return executor.execute(plans.plan(), result); }
    TokenId token() const { return token_of(result, 0); }
    std::string first_violation() const { return executor.violations().empty() ? "" : executor.violations().front(); }

    // Slot 0 computes all of kTokens but the last in blocks 0 1 2 and row 0, and row 1 as after 6 tokens.
    void write_head() {
        plans.next().start({.slot = 0, .tokens = kTokens});
        plans.compute({.slot = 0,
                       .num_new_tokens = 9,
                       .state_dst = 0,
                       .new_blocks = {0, 1, 2},
                       .state_writes = {{6, StateIndex{1}}}});
        ASSERT_TRUE(step());
    }
    // Slot 1 attaches to the first 6 of kTokens: block 0 shared, 2 slots of block 1 copied to block 5, row 1.
    PlanBuilder& attach() {
        plans.next().start({.slot = 1, .tokens = kTokens, .num_computed_tokens = 6, .blocks = {0}});
        return plans;
    }
    static SequenceSpec rest() {
        return {.slot = 1,
                .num_computed_tokens = 6,
                .num_new_tokens = 4,
                .num_sampled_positions = 1,
                .state_src = 1,
                .state_dst = 3,
                .new_blocks = {5, 6}};
    }

    HashExecutor executor;
    PlanBuilder plans{1000};
    StepResult result;
};

TEST(HashExecutor, AnyChunkingDrawsTheExpectedToken) {
    for (int32_t first = 1; first < 10; ++first) {
        Scene run;
        run.plans.next().start({.slot = 0, .tokens = kTokens});
        run.plans.compute({.slot = 0, .num_new_tokens = first, .state_dst = 0, .new_blocks = {4, 2, 7}});
        ASSERT_TRUE(run.step());
        run.plans.next().compute({.slot = 0,
                                  .num_computed_tokens = first,
                                  .num_new_tokens = 10 - first,
                                  .num_sampled_positions = 1,
                                  .state_src = 0,
                                  .state_dst = 0});
        ASSERT_TRUE(run.step());
        EXPECT_EQ(run.token(), run.executor.expected_token(kTokens, {}));
        EXPECT_EQ(run.first_violation(), "");
    }
}

TEST(HashExecutor, AttachedSequenceDrawsTheExpectedTokens) {
    Scene run;
    run.write_head();
    run.attach().copy(1, 5, 2).compute(Scene::rest());
    ASSERT_TRUE(run.step());
    const TokenId token = run.token();
    EXPECT_EQ(token, run.executor.expected_token(kTokens, {}));
    run.plans.next().compute({.slot = 1,
                              .num_computed_tokens = 10,
                              .num_new_tokens = 1,
                              .num_sampled_positions = 1,
                              .state_src = 3,
                              .state_dst = 3,
                              .appended = {token}});
    ASSERT_TRUE(run.step());
    EXPECT_EQ(run.token(), run.executor.expected_token(with(kTokens, token), {}));
    EXPECT_EQ(run.first_violation(), "");
}

TEST(HashExecutor, HeadDigestIsAFunctionOfItsTokens) {
    Scene run;
    run.write_head();
    const std::vector<BlockRun> blocks{{BlockId{0}, 2}};
    EXPECT_EQ(run.executor.head_digest({.length = 6, .blocks = blocks, .state = StateIndex{1}}),
              run.executor.expected_digest(std::span(kTokens).first(6)));
    EXPECT_EQ(run.first_violation(), "");
    EXPECT_NE(run.executor.head_digest({.length = 6, .blocks = blocks, .state = StateIndex{0}}),
              run.executor.expected_digest(std::span(kTokens).first(6)));
    EXPECT_THAT(run.first_violation(), HasSubstr("a head of 6 tokens has a state after 9"));
}

TEST(HashExecutor, ADeterministicSequenceReadsNothingOrdinary) {
    HashExecutorConfig config = kLenient;
    config.ordinary_numerics_id = "ordinary/1";
    Scene run(config);
    run.plans.next().start({.slot = 0, .tokens = kTokens});
    run.plans.compute({.slot = 0,
                       .num_new_tokens = 9,
                       .state_dst = 0,
                       .new_blocks = {0, 1, 2},
                       .state_writes = {{6, StateIndex{1}}},
                       .arithmetic = Arithmetic::kOrdinary});
    ASSERT_TRUE(run.step());
    const std::vector<BlockRun> blocks{{BlockId{0}, 2}};
    HeadImage head{.length = 6, .blocks = blocks, .state = StateIndex{1}, .deterministic = false};
    EXPECT_EQ(run.executor.numerics_of(head), "ordinary/1");
    EXPECT_TRUE(run.executor.head_digest(head));
    EXPECT_EQ(run.first_violation(), "");
    run.attach().copy(1, 5, 2).compute(Scene::rest());
    ASSERT_TRUE(run.step());
    EXPECT_NE(run.token(), run.executor.expected_token(kTokens, {}));
    EXPECT_THAT(run.first_violation(), HasSubstr("is deterministic and reads position 6, made in ordinary arithmetic"));
    const size_t num_violations = run.executor.violations().size();
    head.deterministic = true;
    EXPECT_TRUE(run.executor.head_digest(head));
    ASSERT_EQ(run.executor.violations().size(), num_violations + 1);
    EXPECT_EQ(run.executor.violations().back(), "a head of 6 tokens is deterministic, and its bytes are ordinary/1");
}

TEST(HashExecutor, StaleStateRowChangesTheToken) {
    Scene run;
    run.write_head();
    SequenceSpec rest = Scene::rest();
    rest.state_src = 0;  // the state after 9 tokens
    run.attach().copy(1, 5, 2).compute(rest);
    ASSERT_TRUE(run.step());
    EXPECT_NE(run.token(), run.executor.expected_token(kTokens, {}));
    EXPECT_THAT(run.first_violation(), HasSubstr("state row 0 reads position 6, but finds position 9"));
}

TEST(HashExecutor, WrongSharedBlockChangesTheToken) {
    Scene run;
    run.write_head();
    run.plans.next().start({.slot = 1, .tokens = kTokens, .num_computed_tokens = 6, .blocks = {1}});
    run.plans.copy(1, 5, 2).compute(Scene::rest());
    ASSERT_TRUE(run.step());
    EXPECT_NE(run.token(), run.executor.expected_token(kTokens, {}));
    EXPECT_THAT(run.first_violation(), HasSubstr("slot 1 reads position 0, but finds position 4"));
}

TEST(HashExecutor, TailOfAnotherConversationChangesTheToken) {
    Scene run;
    run.write_head();
    std::vector<TokenId> other = kTokens;
    other[1] = 999;
    run.plans.next().start({.slot = 1, .tokens = other, .num_computed_tokens = 6, .blocks = {0}});
    run.plans.copy(1, 5, 2).compute(Scene::rest());
    ASSERT_TRUE(run.step());
    EXPECT_NE(run.token(), run.executor.expected_token(other, {}));
    EXPECT_THAT(run.first_violation(), HasSubstr("finds that of other tokens"));
}

TEST(HashExecutor, AttachBeforeMaterialisedIsSeen) {
    HashExecutorConfig config = kLenient;
    config.lag_steps = 1;
    Scene run(config);
    run.write_head();
    EXPECT_EQ(run.result.materialised_through_step, 0);
    run.attach().copy(1, 5, 2).compute(Scene::rest());
    ASSERT_TRUE(run.step());
    EXPECT_THAT(run.first_violation(), HasSubstr("written in step 1, but only step 0 is materialised"));
}

TEST(HashExecutor, ReusedBlockIsEmpty) {
    Scene run;
    run.write_head();
    run.plans.next().end(0).start({.slot = 0, .tokens = kTokens});
    run.plans.compute({.slot = 0, .num_new_tokens = 5, .state_dst = 2, .new_blocks = {0, 1, 2}});
    ASSERT_TRUE(run.step());
    const std::vector<BlockRun> blocks{{BlockId{0}, 2}};
    run.executor.head_digest({.length = 6, .blocks = blocks, .state = StateIndex{1}});
    EXPECT_THAT(run.first_violation(), HasSubstr("a head's position 5 holds position -1"));
}

TEST(HashExecutor, FaultTokenEndsTheSequenceThatHoldsIt) {
    HashExecutorConfig config = kLenient;
    config.fault_token = kTokens.back();
    Scene run(config);
    run.write_head();
    run.attach().copy(1, 5, 2).compute(Scene::rest());
    ASSERT_TRUE(run.step());
    EXPECT_EQ(run.result.drawn.at(0).fault_layer, 0);
}

TEST(HashExecutor, AViolationIsAnErrorUnlessDisabled) {
    HashExecutorConfig config = kLenient;
    config.fail_on_violation = true;
    Scene run(config);
    run.write_head();
    SequenceSpec rest = Scene::rest();
    rest.state_src = 0;
    run.attach().copy(1, 5, 2).compute(rest);
    const Status status = run.step();
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, HasSubstr("state row 0 reads position 6"));
}

// --- windows

// Slot 0 has computed all of kTokens in blocks 0 .. 5 and row 0.
struct WindowScene : Scene {
    static HashExecutorConfig config() {
        HashExecutorConfig config = kLenient;
        config.max_log_tokens = 7;
        return config;
    }
    WindowScene() : Scene(config()) {
        plans.next().start({.slot = 0, .tokens = kTokens});
        plans.compute({.slot = 0, .num_new_tokens = 9, .state_dst = 0, .new_blocks = {0, 1, 2, 3, 4, 5}});
        CHECK(step());
    }
    // A window of the last known token and so many drafts: the right ones, but for the one at `wrong`.
    std::vector<TokenId> right_tokens(size_t count) const {
        std::vector<TokenId> tokens = known;
        for (size_t i = 0; i < count; ++i) tokens.push_back(executor.expected_token(tokens, {}));
        return {tokens.begin() + static_cast<std::ptrdiff_t>(known.size()), tokens.end()};
    }
    std::vector<TokenId> run(size_t num_drafts, size_t wrong, bool moves_row) {
        std::vector<TokenId> drafts = right_tokens(num_drafts);
        if (wrong < drafts.size()) drafts[wrong] = (drafts[wrong] + 1) % 1000;
        const auto length = static_cast<int64_t>(known.size()) - 1;
        SequenceSpec spec{.slot = 0,
                          .num_computed_tokens = length,
                          .num_new_tokens = static_cast<int32_t>(num_drafts) + 1,
                          .num_sampled_positions = static_cast<int32_t>(num_drafts) + 1,
                          .state_src = 0,
                          .state_dst = moves_row ? 0 : -1,
                          .num_state_tokens = state_length,
                          .appended = not_sent};
        spec.appended.insert(spec.appended.end(), drafts.begin(), drafts.end());
        plans.next().compute(spec);
        CHECK(step());
        if (moves_row) state_length = length + 1;
        const auto told = result.tokens_of(result.drawn.at(0));
        not_sent.assign(told.begin(), told.end());
        known.insert(known.end(), told.begin(), told.end());
        return not_sent;
    }
    std::vector<TokenId> known = kTokens;
    std::vector<TokenId> not_sent;
    int64_t state_length = 9;
};

TEST(HashExecutor, AWindowIsAcceptedUpToTheFirstDraftThatIsWrong) {
    for (size_t wrong = 0; wrong <= 4; ++wrong) {
        WindowScene scene;
        const std::vector<TokenId> right = scene.right_tokens(5);
        const std::vector<TokenId> told = scene.run(4, wrong, true);
        EXPECT_EQ(told, std::vector<TokenId>(right.begin(), right.begin() + static_cast<std::ptrdiff_t>(wrong) + 1));
        EXPECT_EQ(scene.first_violation(), "");
        EXPECT_TRUE(scene.result.check(scene.plans.plan()));
        // What was rolled back has left nothing: the next window goes on as if it had never been there.
        const std::vector<TokenId> next = scene.right_tokens(3);
        EXPECT_EQ(scene.run(2, 9, true), next);
        EXPECT_EQ(scene.first_violation(), "");
    }
}

TEST(HashExecutor, TheLogStandsForARowThatIsNotWritten) {
    WindowScene scene;
    for (const size_t wrong : {1, 0, 1}) {
        const std::vector<TokenId> right = scene.right_tokens(wrong + 1);
        EXPECT_EQ(scene.run(2, wrong, false), right);
    }
    EXPECT_EQ(scene.first_violation(), "");
}

TEST(HashExecutor, AFaultEndsAWindowBehindTheTokensBeforeIt) {
    WindowScene clean;
    const std::vector<TokenId> right = clean.right_tokens(3);
    HashExecutorConfig config = WindowScene::config();
    config.fault_token = right[1];
    WindowScene scene;
    scene.executor = HashExecutor(config);
    scene.plans.next().start({.slot = 0, .tokens = kTokens});
    scene.plans.compute({.slot = 0, .num_new_tokens = 9, .state_dst = 0, .new_blocks = {0, 1, 2, 3, 4, 5}});
    ASSERT_TRUE(scene.step());
    EXPECT_EQ(scene.run(3, 9, true), (std::vector<TokenId>{right[0], right[1]}));
    EXPECT_EQ(scene.result.drawn.at(0).fault_layer, 0);
}

}  // namespace
}  // namespace verbatim::tests
