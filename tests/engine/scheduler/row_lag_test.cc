// State rows that decoding leaves behind: how often they are written, where heads are taken, and what else reads them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/engine_scene.h"

namespace verbatim::tests {
namespace {

using ::testing::ElementsAre;

// By step, whether the plan's only sequence writes its row.
std::vector<bool> written(const RunLog& log) {
    std::vector<bool> of;
    for (const StepPlan& plan : log.plans) {
        if (plan.sequences.size() == 1) of.push_back(plan.sequences.front().state_dst != kNoState);
    }
    return of;
}

TEST(RowLag, ARowIsWrittenWhenItsLogIsFullAndWhereTheTurnEnds) {
    EngineScene scene({.max_state_lag_tokens = 2});
    const RequestId id = scene.submit(scene.history("a", kPrompt, 7));
    scene.run();
    // The prompt, then six tokens more; the last of them is not computed, and the row stands before it.
    EXPECT_THAT(written(scene.log), ElementsAre(true, false, false, true, false, false, true));
    EXPECT_EQ(scene.engine.stats().unwritten_rows, 4);
    EXPECT_EQ(scene.streamed(id), scene.expected(kPrompt, 7));
    scene.expect_home();
}

TEST(RowLag, TheLastStepWritesTheRowThoughItsLogHasRoom) {
    EngineScene scene({.max_state_lag_tokens = 2});
    scene.submit(scene.history("a", kPrompt, 6));
    scene.run();
    EXPECT_THAT(written(scene.log), ElementsAre(true, false, false, true, false, true));
    EXPECT_EQ(scene.engine.stats().unwritten_rows, 3);
    scene.expect_home();
}

TEST(RowLag, WithoutOneEveryStepWritesTheRow) {
    EngineScene scene({.max_state_lag_tokens = 0});
    scene.submit(scene.history("a", kPrompt, 7));
    scene.run();
    EXPECT_THAT(written(scene.log), ElementsAre(true, true, true, true, true, true, true));
    EXPECT_EQ(scene.engine.stats().unwritten_rows, 0);
    scene.expect_home();
}

// The head needs the state where the turn ended: one step more moves the row there, and computes nothing.
TEST(RowLag, ATurnThatStopsBehindItsRowMovesTheRowFirst) {
    EngineScene scene({.max_state_lag_tokens = 20});
    ChatRequest request = scene.history("a", kPrompt, 20);
    const std::vector<TokenId> right = scene.expected(kPrompt, 20);
    request.stop_tokens = {right[4]};
    const RequestId id = scene.submit(std::move(request));
    scene.run();
    EXPECT_EQ(scene.streamed(id).size(), 5u);
    EXPECT_THAT(written(scene.log), ElementsAre(true, false, false, false, false, true));
    EXPECT_EQ(scene.log.plans.at(5).sequences.front().num_new_tokens, 0);
    EXPECT_EQ(scene.engine.stats().commits, 1);
    // The next turn goes on from that head.
    scene.submit(scene.suffix("a", {5, 6, 7}, 3));
    scene.run();
    EXPECT_EQ(scene.engine.stats().attaches, 1);
    scene.expect_home();
}

TEST(RowLag, AModelWithoutStateHasNoRowToLeave) {
    EngineScene scene({.num_state_rows = 0, .max_state_lag_tokens = 4});
    scene.submit(scene.history("a", kPrompt, 7));
    scene.run();
    EXPECT_EQ(scene.engine.stats().unwritten_rows, 0);
    scene.expect_home();
}

}  // namespace
}  // namespace verbatim::tests
