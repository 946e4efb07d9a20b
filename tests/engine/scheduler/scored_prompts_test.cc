// Prompts whose logits are wanted: which positions are scored, in which steps, and how often.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/engine_scene.h"

namespace verbatim::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

ChatRequest scored(EngineScene& scene, const std::string& id, const std::vector<TokenId>& tokens, int64_t from,
                   int64_t max_tokens = 2) {
    ChatRequest request = scene.history(id, tokens, max_tokens);
    request.scored_from = from;
    return request;
}

// (new tokens, scored positions) of the first sequence of each plan.
std::vector<std::pair<int32_t, int32_t>> shares(const RunLog& log) {
    std::vector<std::pair<int32_t, int32_t>> of;
    for (const StepPlan& plan : log.plans) {
        if (plan.sequences.empty()) continue;
        of.emplace_back(plan.sequences.front().num_new_tokens, plan.sequences.front().num_scored_positions);
    }
    return of;
}

std::map<RequestId, int64_t> num_scored(const RunLog& log) {
    std::map<SequenceSlot, RequestId> request_of;
    std::map<RequestId, int64_t> sums;
    for (const StepPlan& plan : log.plans) {
        for (const SequenceStart& start : plan.new_sequences) request_of[start.slot] = start.request;
        for (const ScheduledSequence& sequence : plan.sequences)
            sums[request_of.at(sequence.slot)] += sequence.num_scored_positions;
    }
    return sums;
}

// The token at a position is scored by the logits of the position before. The prompt's last position samples.
TEST(ScoredPrompts, EveryTokenIsScoredFromTheFirstThatIsWanted) {
    const auto first_share = [](int64_t from, int64_t max_tokens) {
        EngineScene scene;
        scene.complete(scored(scene, "a", kPrompt, from, max_tokens));
        return shares(scene.log).front();
    };
    EXPECT_THAT(first_share(0, 2), Pair(10, 9));
    EXPECT_THAT(first_share(1, 2), Pair(10, 9));
    EXPECT_THAT(first_share(4, 2), Pair(10, 6));
    EXPECT_THAT(first_share(4, 0), Pair(10, 7)) << "without a token that is sampled the last position counts";
    EXPECT_THAT(first_share(30, 2), Pair(10, 0));
}

TEST(ScoredPrompts, AChunkScoresItsPositions) {
    EngineScene scene({.step_tokens = 4});
    scene.complete(scored(scene, "a", kPrompt, 3));
    EXPECT_THAT(shares(scene.log), ElementsAre(Pair(4, 2), Pair(4, 4), Pair(2, 1), Pair(1, 0)));
}

// A step may score kMaxScoredPositions; those before the first one do not count.
TEST(ScoredPrompts, PositionsThatAreNotScoredDoNotCount) {
    EngineScene scene({.num_blocks = 250, .step_tokens = 2048});
    scene.complete(scored(scene, "a", iota_tokens(0, 900), 500));
    EXPECT_THAT(shares(scene.log),
                ElementsAre(Pair(499 + kMaxScoredPositions, kMaxScoredPositions),
                            Pair(900 - 499 - kMaxScoredPositions, 900 - 500 - kMaxScoredPositions), Pair(1, 0)));
}

TEST(ScoredPrompts, APreemptedRequestIsScoredOnce) {
    EngineScene scene({.num_blocks = 14});
    const RequestId oldest = scene.submit(scored(scene, "a", iota_tokens(100, 17), 0, 23));
    const RequestId youngest = scene.submit(scored(scene, "b", iota_tokens(300, 13), 0, 20));
    scene.run();
    EXPECT_GT(scene.engine.stats().preemptions, 0);
    EXPECT_THAT(num_scored(scene.log), ElementsAre(Pair(oldest, 16), Pair(youngest, 12)));
    scene.expect_home();
}

// While the older request takes all positions, the younger one has attached to its head and computes nothing.
TEST(ScoredPrompts, AHeadIsPinnedUntilARequestThatMayNotScoreYetComputes) {
    EngineScene scene({.num_blocks = 250, .step_tokens = 2048});
    const FinishedEvent first = scene.complete(scene.history("b", kPrompt));
    scene.submit(scored(scene, "a", iota_tokens(200, kMaxScoredPositions + 40), 0));
    const RequestId request = scene.submit([&] {
        ChatRequest next = scene.suffix("b", iota_tokens(500, 9));
        next.scored_from = 14;
        return next;
    }());
    scene.step();
    EXPECT_EQ(scene.engine.find(request)->first_step, -1);
    EXPECT_EQ(scene.engine.find(request)->num_reused, 13);
    EXPECT_EQ(scene.engine.cache().num_pins(first.head), 1);
    scene.run();
    scene.expect_home();
}

}  // namespace
}  // namespace verbatim::tests
