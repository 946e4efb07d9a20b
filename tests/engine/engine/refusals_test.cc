// Every reason for which a request is refused, by name, and that a refusal changes nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/support/engine_scene.h"

namespace verbatim::tests {
namespace {

using ::testing::HasSubstr;

// Nothing is left of a refused request.
void expect_untouched(EngineScene& scene) {
    EXPECT_TRUE(scene.engine.idle());
    EXPECT_EQ(scene.engine.ledger().num_leases(), 0u);
    EXPECT_EQ(scene.executor.num_computed_tokens(), 0);
    scene.engine.verify();
}

TEST(Refusals, InvalidRequestsNameEveryProblem) {
    EngineScene scene;
    ChatRequest request = scene.history("a", {}, -1);
    request.sampling.temperature = -1;
    request.sampling.top_p = 0;
    request.sampling.top_k = -2;
    request.sampling.repetition_penalty = 0;
    request.stop_tokens = {1000};
    request.stop_strings = {{}, {-1}};
    const auto refused = scene.engine.submit(request);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().reason, RefusalReason::kInvalid);
    for (const char* field : {"messages", "max_tokens", "temperature", "top_p", "top_k", "repetition_penalty",
                              "stop_tokens", "stop_strings: an empty one", "stop_strings: token -1"}) {
        EXPECT_THAT(refused.error().message(), HasSubstr(field));
    }
    EXPECT_EQ(scene.refusals(RefusalReason::kInvalid), 1);
    expect_untouched(scene);
}

TEST(Refusals, RegenerateTakesNoMessages) {
    EngineScene scene;
    ChatRequest request = scene.regenerate("a");
    request.messages.push_back({scene.store.store(kPrompt), true});
    EXPECT_EQ(scene.refused(request), RefusalReason::kInvalid);
}

// They would make logits that are not finite, and the draw insists on finite ones.
TEST(Refusals, SamplingParametersMustBeFinite) {
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        for (float SamplingParams::*field : {&SamplingParams::temperature, &SamplingParams::repetition_penalty,
                                             &SamplingParams::presence_penalty, &SamplingParams::frequency_penalty}) {
            EngineScene scene;
            ChatRequest request = scene.history("a", kPrompt);
            request.sampling.*field = value;
            EXPECT_EQ(scene.refused(request), RefusalReason::kInvalid);
        }
    }
}

TEST(Refusals, ASecondWriterIsBusyUntilTheFirstEnds) {
    EngineScene scene;
    const RequestId first = scene.submit(scene.history("a", kPrompt));
    EXPECT_EQ(scene.refused(scene.history("a", kPrompt)), RefusalReason::kBusy);
    EXPECT_EQ(scene.refused(scene.suffix("a", kPrompt)), RefusalReason::kBusy);
    scene.run();
    EXPECT_TRUE(scene.finished(first).committed);
    EXPECT_EQ(scene.refusals(RefusalReason::kBusy), 2);
    EXPECT_TRUE(scene.complete(scene.suffix("a", kPrompt)).committed);
}

// A client that sends again what runs can wait for the one that does.
TEST(Refusals, ABusyConversationNamesTheRequestThatRuns) {
    EngineScene scene;
    scene.submit(scene.history("b", kPrompt));
    const RequestId first = scene.submit(scene.history("a", kPrompt));
    const auto refused = scene.engine.submit(scene.history("a", kPrompt));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().reason, RefusalReason::kBusy);
    EXPECT_EQ(refused.error().running, first);
    const auto unknown = scene.engine.submit(scene.suffix("c", kPrompt));
    ASSERT_FALSE(unknown);
    EXPECT_EQ(unknown.error().running, std::nullopt);
}

TEST(Refusals, ASuffixOrARegenerateOfAnUnknownConversation) {
    EngineScene scene;
    EXPECT_EQ(scene.refused(scene.suffix("a", kPrompt)), RefusalReason::kUnknownConversation);
    EXPECT_EQ(scene.refused(scene.regenerate("a")), RefusalReason::kUnknownConversation);
    expect_untouched(scene);
}

TEST(Refusals, ASuffixAfterAnAbortedFirstTurnIsOfAnUnknownConversation) {
    EngineScene scene;
    const RequestId first = scene.submit(scene.history("a", kPrompt));
    scene.step();
    scene.abort(first);
    EXPECT_EQ(scene.refused(scene.suffix("a", kPrompt)), RefusalReason::kUnknownConversation);
}

TEST(Refusals, ASuffixWithoutTokensIsEmpty) {
    EngineScene scene({.end_of_turn = 7});
    scene.complete(scene.history("a", kPrompt));
    EXPECT_EQ(scene.refused(scene.suffix("a", {})), RefusalReason::kEmptySuffix);
    ChatRequest none = scene.suffix("a", {});
    none.messages.clear();
    EXPECT_EQ(scene.refused(none), RefusalReason::kEmptySuffix);
}

TEST(Refusals, ATurnLongerThanTheModelsContextIsTooLong) {
    EngineScene scene({.max_model_len = 20});
    EXPECT_EQ(scene.refused(scene.history("a", kPrompt, 11)), RefusalReason::kTooLong);
    EXPECT_EQ(scene.refused(scene.history("a", iota_tokens(0, 21), 0)), RefusalReason::kTooLong);
    expect_untouched(scene);
    EXPECT_EQ(scene.complete(scene.history("a", kPrompt, 10)).num_output_tokens, 10);
}

TEST(Refusals, TheGreatestMaxTokensIsTooLongAndDoesNotOverflow) {
    EngineScene scene;
    EXPECT_EQ(scene.refused(scene.history("a", kPrompt, std::numeric_limits<int64_t>::max())), RefusalReason::kTooLong);
    EngineScene no_kv({.num_blocks = 0});
    EXPECT_EQ(no_kv.refused(no_kv.history("a", kPrompt, std::numeric_limits<int64_t>::max())), RefusalReason::kTooLong);
}

TEST(Refusals, ATurnThatDoesNotFitTheEmptyCacheIsTooLarge) {
    EngineScene scene({.num_blocks = 5});  // 4 tokens each; one block for the copy of a tail
    EXPECT_EQ(scene.refused(scene.history("a", kPrompt, 7)), RefusalReason::kTooLarge);
    expect_untouched(scene);
    EXPECT_EQ(scene.complete(scene.history("a", kPrompt, 6)).num_output_tokens, 6);
    scene.expect_home();
}

TEST(Refusals, WithoutMaxTokensATurnHasTheRoomThatIsLeft) {
    EngineScene scene({.max_model_len = 11});
    ChatRequest request = scene.history("a", kPrompt);
    request.max_tokens.reset();
    EXPECT_EQ(scene.complete(request).num_output_tokens, 1);
    ChatRequest longer = scene.history("b", iota_tokens(0, 11));
    longer.max_tokens.reset();
    EXPECT_EQ(scene.refused(longer), RefusalReason::kTooLong);
}

TEST(Refusals, ATurnThatFitsTheBudgetWithOneRowIsTaken) {
    EngineScene scene({.budget_bytes = 40 + 5 * 4});
    EXPECT_EQ(scene.refused(scene.history("a", kPrompt, 7)), RefusalReason::kTooLarge);
    EXPECT_EQ(scene.complete(scene.history("a", kPrompt, 6)).num_output_tokens, 6);
    scene.expect_home();
}

}  // namespace
}  // namespace verbatim::tests
