// Conversations that another process has committed, and turns that are ended where they are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/engine_scene.h"

namespace verbatim::tests {
namespace {

using ::testing::ElementsAre;

std::vector<Message> parts_of(EngineScene& scene, const std::vector<std::vector<TokenId>>& tokens) {
    std::vector<Message> parts;
    for (const auto& part : tokens) parts.push_back({scene.store.store(part)});
    return parts;
}

TEST(Restore, CommittedTokensAreComputedAgainAndCountedAsLost) {
    EngineScene before;
    before.complete(before.history("a", kPrompt));
    before.complete(before.suffix("a", iota_tokens(500, 3)));
    const std::vector<TokenId> committed = before.committed("a");
    ASSERT_EQ(committed.size(), 21u);

    EngineScene scene;
    const auto cut = [&](size_t begin, size_t end) {
        return std::vector(committed.begin() + static_cast<ptrdiff_t>(begin),
                           committed.begin() + static_cast<ptrdiff_t>(end));
    };
    ASSERT_TRUE(scene.engine.restore(scene.key("a"),
                                     parts_of(scene, {cut(0, 10), cut(10, 14), cut(14, 17), cut(17, 21)}), Version{7}));
    EXPECT_EQ(scene.committed("a"), committed);
    const FinishedEvent next = scene.complete(scene.suffix("a", iota_tokens(600, 2)));
    EXPECT_EQ(next.num_reused_tokens, 0);
    EXPECT_EQ(next.version, Version{8});
    EXPECT_EQ(scene.not_reused(NotReused::kLost), 20);
    EXPECT_EQ(scene.not_reused(NotReused::kSeam), 1);
    EXPECT_EQ(scene.not_reused(NotReused::kNewTokens), 2);
    EXPECT_EQ(scene.streamed(next.request), scene.expected(committed + iota_tokens(600, 2), 4));
    EXPECT_EQ(scene.complete(scene.suffix("a", iota_tokens(700, 1))).num_reused_tokens, 26);
    scene.expect_home();
}

TEST(Restore, ARewoundTurnIsLostToo) {
    EngineScene scene;
    ASSERT_TRUE(scene.engine.restore(
        scene.key("a"), parts_of(scene, {kPrompt, iota_tokens(300, 4), iota_tokens(400, 3), iota_tokens(500, 4)}),
        Version{2}));
    ASSERT_EQ(scene.engine.rewind(scene.key("a"), 1), 14);
    EXPECT_EQ(scene.complete(scene.suffix("a", iota_tokens(600, 2))).num_reused_tokens, 0);
    EXPECT_EQ(scene.not_reused(NotReused::kLost), 13);
    EXPECT_EQ(scene.not_reused(NotReused::kBetweenHeads), 0);
    scene.expect_home();
}

TEST(Restore, ATurnsOutputIsItsText) {
    EngineScene scene;
    ASSERT_TRUE(
        scene.engine.restore(scene.key("a"), parts_of(scene, {kPrompt, iota_tokens(300, 4), {5}, {}}), Version{2}));
    const std::vector<Turn>& turns = scene.engine.ledger().find(scene.key("a"))->turns;
    EXPECT_EQ(turns[0].num_text_tokens, 4);
    EXPECT_EQ(turns[1].num_text_tokens, 0);
}

// A head ends before the last token of an output. A turn without output has none: its head is the whole prompt.
TEST(Restore, WhatIsLostEndsWhereItsHeadsDid) {
    const auto num_lost = [](const std::vector<std::vector<TokenId>>& parts, const std::vector<TokenId>& prompt) {
        EngineScene scene;
        CHECK(scene.engine.restore(scene.key("a"), parts_of(scene, parts), Version{2}));
        scene.complete(scene.history("a", prompt));
        return scene.not_reused(NotReused::kLost);
    };
    const std::vector<TokenId> output = iota_tokens(300, 4);
    EXPECT_EQ(num_lost({kPrompt, output, {5, 6}, {7}}, kPrompt + output + iota_tokens(700, 2)), 13);
    EXPECT_EQ(num_lost({kPrompt, {}}, kPrompt + iota_tokens(700, 2)), 10);
    EXPECT_EQ(num_lost({kPrompt, {}, {5}, output}, kPrompt + iota_tokens(700, 2)), 10);
    EXPECT_EQ(num_lost({{5}, {}}, {5, 6, 7}), 1);
}

TEST(Restore, WhatIsNoConversationIsRefused) {
    EngineScene scene;
    EXPECT_FALSE(scene.engine.restore(scene.key("a"), {}, Version{1}));
    EXPECT_FALSE(scene.engine.restore(scene.key("a"), parts_of(scene, {kPrompt}), Version{1}));
    EXPECT_FALSE(scene.engine.restore(scene.key("a"), parts_of(scene, {{}, kPrompt}), Version{1}));
    EXPECT_FALSE(scene.engine.restore(scene.key("a"), parts_of(scene, {kPrompt, {}}), Version{0}));
    EXPECT_TRUE(scene.engine.restore(scene.key("a"), parts_of(scene, {kPrompt, {}}), Version{1}));
    EXPECT_FALSE(scene.engine.restore(scene.key("a"), parts_of(scene, {kPrompt, {}}), Version{1})) << "it is there";
    EXPECT_EQ(scene.complete(scene.suffix("a", iota_tokens(600, 2))).num_reused_tokens, 0);
    scene.expect_home();
}

TEST(EndTurn, ATurnCommitsTheTokensThatItHas) {
    EngineScene scene;
    const RequestId request = scene.submit(scene.history("a", kPrompt, 100));
    EXPECT_FALSE(scene.engine.end_turn(request)) << "nothing is computed yet";
    for (int i = 0; i < 3; ++i) scene.step();
    ASSERT_TRUE(scene.engine.end_turn(request));
    EXPECT_FALSE(scene.engine.end_turn(request));
    scene.run();
    ASSERT_TRUE(scene.is_finished(request));
    EXPECT_TRUE(scene.finished(request).committed);
    EXPECT_EQ(scene.finished(request).reason, FinishReason::kStopString);
    EXPECT_EQ(scene.streamed(request).size(), 3u);
    EXPECT_EQ(scene.committed("a"), kPrompt + scene.streamed(request));
    EXPECT_THAT(scene.head_lengths("a", HeadKind::kTurn), ElementsAre(12));
    EXPECT_EQ(scene.complete(scene.suffix("a", iota_tokens(600, 2))).num_reused_tokens, 12);
    scene.expect_home();
}

TEST(EndTurn, WaitsForItsBytesLikeEveryTurn) {
    EngineScene scene({.lag_steps = 3});
    const RequestId request = scene.submit(scene.history("a", kPrompt, 100));
    for (int i = 0; i < 3; ++i) scene.step();
    ASSERT_TRUE(scene.engine.end_turn(request));
    EXPECT_FALSE(scene.is_finished(request));
    scene.run();
    EXPECT_TRUE(scene.finished(request).committed);
    scene.expect_home();
}

TEST(EndTurn, EndsOnlyATurnThatDecodes) {
    EngineScene scene({.step_tokens = 4});
    const RequestId request = scene.submit(scene.history("a", kPrompt, 100));
    scene.step();
    EXPECT_FALSE(scene.engine.end_turn(request)) << "its prompt is computed";
    EngineScene short_prompt;
    EXPECT_FALSE(short_prompt.engine.end_turn(short_prompt.submit(short_prompt.history("a", {5}, 3)))) << "it waits";
    EngineScene lag({.lag_steps = 3});
    const RequestId over = lag.submit(lag.history("a", kPrompt, 1));
    lag.step();
    ASSERT_EQ(lag.engine.find(over)->status, SequenceStatus::kCommitting);
    EXPECT_FALSE(lag.engine.end_turn(over)) << "it has ended";
    lag.run();
    EXPECT_EQ(lag.finished(over).reason, FinishReason::kLength);
}

TEST(EndTurn, IsCommittedWhenItsLastStepIsMaterialised) {
    for (const int32_t lag : {0, 1}) {
        EngineScene scene({.lag_steps = lag});
        const RequestId request = scene.submit(scene.history("a", kPrompt, 100));
        for (int i = 0; i < 3; ++i) scene.step();
        ASSERT_TRUE(scene.engine.end_turn(request));
        EXPECT_EQ(scene.engine.find(request) == nullptr, lag == 0);
        scene.step();
        EXPECT_EQ(scene.engine.find(request), nullptr);
        scene.run();
        scene.expect_home();
    }
}

TEST(EndTurn, ATurnThatDraftsGivesItsDraftsUp) {
    int num_moving = 0;  // rows that have yet to move to where the turn ended
    for (int num_steps = 2; num_steps < 9; ++num_steps) {
        EngineScene scene({.max_window = 4, .verify_tokens = 8});
        const RequestId request = scene.submit(scene.history("a", kPrompt, 40));
        for (int i = 0; i < num_steps; ++i) scene.step();
        ASSERT_TRUE(scene.engine.find(request)->draft_path.has_value());
        const size_t num_tokens = scene.streamed(request).size();
        ASSERT_TRUE(scene.engine.end_turn(request));
        if (const Sequence* sequence = scene.engine.find(request); sequence != nullptr) {
            ++num_moving;
            EXPECT_FALSE(sequence->draft_path.has_value());
        }
        scene.run();
        EXPECT_EQ(scene.streamed(request).size(), num_tokens);
        EXPECT_TRUE(scene.finished(request).committed);
        scene.expect_home();
    }
    EXPECT_GE(num_moving, 1);
}

}  // namespace
}  // namespace verbatim::tests
