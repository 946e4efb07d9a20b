// Deterministic and ordinary requests of one conversation, in two arithmetics: what each may attach to, and what heads
// say of their bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/engine_scene.h"

namespace verbatim::tests {
namespace {

using ::testing::ElementsAre;

struct TwoArithmetics : EngineScene {
    explicit TwoArithmetics(SceneOptions options = {}) : EngineScene(with_two(options)) {}
    static SceneOptions with_two(SceneOptions options) {
        options.two_arithmetics = true;
        return options;
    }
    FinishedEvent turn(ChatRequest request, bool deterministic) {
        request.deterministic = deterministic;
        return complete(std::move(request));
    }
    // Of the name's turn heads, oldest first.
    [[nodiscard]] std::vector<std::string> numerics(const std::string& id) const {
        std::vector<std::string> found;
        for (const NamedHead& entry : engine.cache().find(key(id))->heads) {
            if (entry.kind == HeadKind::kTurn) found.push_back(engine.cache().find(entry.head)->numerics_id);
        }
        return found;
    }
};

const std::vector<TokenId> kSuffixTokens = iota_tokens(500, 5);

TEST(Arithmetics, ADeterministicTurnAttachesToNothingThatAnOrdinaryOneMade) {
    TwoArithmetics scene;
    scene.turn(scene.history("a", kPrompt), true);
    EXPECT_EQ(scene.committed("a"), kPrompt + scene.expected(kPrompt, 4));
    const FinishedEvent ordinary = scene.turn(scene.suffix("a", kSuffixTokens), false);
    EXPECT_EQ(ordinary.num_reused_tokens, 13);  // any head serves it
    const std::vector<TokenId> before = scene.committed("a");
    ASSERT_EQ(before.size(), 23u);
    EXPECT_EQ(scene.not_reused(NotReused::kOtherNumerics), 0);
    EXPECT_THAT(scene.numerics("a"), ElementsAre("hash/1", kMixedNumericsId));

    const FinishedEvent event = scene.turn(scene.suffix("a", kSuffixTokens), true);
    EXPECT_EQ(event.num_reused_tokens, 13);  // the first turn's: the ordinary one's head lies at 22
    EXPECT_EQ(scene.not_reused(NotReused::kOtherNumerics), 22 - 13);
    EXPECT_EQ(scene.streamed(event.request), scene.expected(before + kSuffixTokens, 4));
    EXPECT_THAT(scene.numerics("a"), ElementsAre(kMixedNumericsId, "hash/1"));
    scene.expect_home();
}

TEST(Arithmetics, AHeadIsOrdinaryWhereNothingElseMadeIt) {
    TwoArithmetics scene;
    scene.turn(scene.history("a", kPrompt), false);
    scene.turn(scene.suffix("a", kSuffixTokens), false);
    EXPECT_THAT(scene.numerics("a"), ElementsAre("ordinary/1", "ordinary/1"));
    const std::vector<TokenId> before = scene.committed("a");
    const FinishedEvent event = scene.turn(scene.suffix("a", kSuffixTokens), true);
    EXPECT_EQ(event.num_reused_tokens, 0);
    EXPECT_EQ(scene.not_reused(NotReused::kOtherNumerics), 22);
    EXPECT_EQ(scene.streamed(event.request), scene.expected(before + kSuffixTokens, 4));
    scene.expect_home();
}

// What is mixed stays so, however much an ordinary turn adds.
TEST(Arithmetics, AMixedHeadMakesMixedHeads) {
    TwoArithmetics scene({.keep_turn_heads = 1});
    scene.turn(scene.history("a", kPrompt), true);
    scene.turn(scene.suffix("a", kSuffixTokens), false);
    const FinishedEvent event = scene.turn(scene.suffix("a", kSuffixTokens), false);
    EXPECT_EQ(event.num_reused_tokens, 22);
    EXPECT_THAT(scene.numerics("a"), ElementsAre(kMixedNumericsId));
    scene.expect_home();
}

TEST(Arithmetics, ByTokensADeterministicTurnFindsHeadsOfItsOwnOnly) {
    TwoArithmetics scene({.lookup = LookupMode::kPrefix});
    scene.turn(scene.history("a", kPrompt), false);
    const FinishedEvent other = scene.turn(scene.history("b", kPrompt + kSuffixTokens), true);
    EXPECT_EQ(other.num_reused_tokens, 0);
    const FinishedEvent ordinary = scene.turn(scene.history("c", kPrompt + kSuffixTokens + kSuffixTokens), false);
    EXPECT_EQ(ordinary.num_reused_tokens, 14);  // of b's prompt
    EXPECT_THAT(scene.numerics("c"), ElementsAre(kMixedNumericsId));
    scene.expect_home();
}

// A request for promised bits does not get an answer without the promise.
TEST(Arithmetics, ATurnIdOfAnOrdinaryAnswerIsNoneOfADeterministicRequest) {
    TwoArithmetics scene;
    ChatRequest request = scene.history("a", kPrompt);
    request.turn_id = "t1";
    scene.turn(request, false);
    EXPECT_EQ(scene.refused(request), RefusalReason::kTurnMismatch);
    request.deterministic = false;
    const auto again = scene.engine.submit(request);
    ASSERT_TRUE(again && again->recorded);
    EXPECT_EQ(again->recorded->output.to_vector(), scene.expected(kPrompt, 4, Arithmetic::kOrdinary));
}

TEST(Arithmetics, OrdinaryRequestsSampleInTheirArithmetic) {
    TwoArithmetics scene;
    const FinishedEvent event = scene.turn(scene.history("a", kPrompt, 40), false);
    EXPECT_EQ(scene.streamed(event.request), scene.expected(kPrompt, 40, Arithmetic::kOrdinary));
    EXPECT_NE(scene.streamed(event.request), scene.expected(kPrompt, 40));
}

}  // namespace
}  // namespace verbatim::tests
