// Steps as executors and listeners see them: memory that is freed, heads that go, slots that end, their time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/check.h"
#include "tests/support/engine_scene.h"

namespace verbatim::tests {
namespace {

using ::testing::Contains;
using ::testing::Each;

// The hash executor; it keeps what it is asked and given.
class WatchingExecutor final : public Executor {
public:
    explicit WatchingExecutor(const SceneOptions& options)
        : inner_({.pools = options.pools(), .lag_steps = options.lag_steps}) {}
    Status execute(const StepPlan& plan, StepResult& result) override {
        RETURN_IF_ERROR(inner_.execute(plan, result));
        result.elapsed_ns = 100 + plan.step;
        return {};
    }
    void take_freed(const FreedUnits& units) override { freed = units; }
    std::optional<Digest> head_digest(const HeadImage& image) override {
        writers.push_back(image.writer);
        return inner_.head_digest(image);
    }
    [[nodiscard]] std::string numerics_id() const override { return inner_.numerics_id(); }
    [[nodiscard]] const std::vector<std::string>& violations() const { return inner_.violations(); }
    [[nodiscard]] int64_t num_freed_blocks() const {
        int64_t sum = 0;
        for (const BlockRun& run : freed.blocks) sum += run.count;
        return sum;
    }
    [[nodiscard]] int64_t num_freed_rows() const {
        int64_t sum = 0;
        for (const RowRun& run : freed.rows) sum += run.count;
        return sum;
    }

    FreedUnits freed;                   // before the last step
    std::vector<SequenceSlot> writers;  // of the heads that were digested

private:
    HashExecutor inner_;
};

struct WatchedScene {
    explicit WatchedScene(const SceneOptions& options = {}) : executor(options), rig(options, executor, 1000) {}
    WatchingExecutor executor;
    EngineRig rig;
};

TEST(Steps, AnAssertionNamesTheSeedAndTheStep) {
    EngineScene scene({.seed = 77});
    scene.submit(scene.history("a", kPrompt));
    scene.step();
    scene.step();
    EXPECT_EQ(run_context().seed, 77u);
    EXPECT_EQ(run_context().step, 1);
}

TEST(Steps, TheTimeOfTheLastOneIsTheExecutors) {
    WatchedScene scene;
    scene.rig.submit(scene.rig.history("a", kPrompt));
    scene.rig.step();
    scene.rig.step();
    EXPECT_EQ(scene.rig.engine.elapsed_ns(), 101);
}

TEST(Steps, WhatIsFreedUnderABudgetIsReportedOnceBeforeTheNextPlan) {
    WatchedScene scene({.budget_bytes = 4000});
    scene.rig.complete(scene.rig.history("a", kPrompt));
    const int64_t num_blocks = scene.rig.engine.cache().kv().pool().num_used();
    const int64_t num_rows = scene.rig.engine.cache().state().pool().num_used();
    ASSERT_TRUE(num_blocks > 0 && num_rows > 0);
    ASSERT_TRUE(scene.rig.engine.remove(scene.rig.key("a")));
    scene.rig.submit(scene.rig.history("b", kPrompt));
    scene.rig.step();
    EXPECT_EQ(scene.executor.num_freed_blocks(), num_blocks);
    EXPECT_EQ(scene.executor.num_freed_rows(), num_rows);
    scene.rig.step();
    EXPECT_EQ(scene.executor.num_freed_blocks(), 0);
    EXPECT_EQ(scene.executor.num_freed_rows(), 0);
}

TEST(Steps, AHeadThatIsEvictedIsTold) {
    EngineScene scene({.num_blocks = 9});
    std::vector<HeadId> evicted;
    scene.engine.on_evict([&](const Head& head) { evicted.push_back(head.id); });
    const FinishedEvent first = scene.complete(scene.history("a", kPrompt));
    scene.complete(scene.history("b", iota_tokens(300, 26)));
    EXPECT_EQ(static_cast<int64_t>(evicted.size()), scene.engine.stats().evictions);
    EXPECT_THAT(evicted, Contains(first.head));
}

// A snapshot that is written when its request is gone is read from the pools.
TEST(Steps, AHeadWhoseWriterHasEndedHasNone) {
    for (const bool aborts : {false, true}) {
        WatchedScene scene({.lag_steps = 2});
        const RequestId request = scene.rig.submit(scene.rig.history("a", kPrompt, 20));
        scene.rig.step();
        ASSERT_FALSE(scene.rig.engine.publication().empty());
        if (aborts) scene.rig.abort(request);
        for (int i = 0; i < 4; ++i) scene.rig.step();
        ASSERT_FALSE(scene.rig.engine.cache().heads().empty());
        if (aborts) {
            EXPECT_THAT(scene.executor.writers, Each(kNoSlot));
        } else {
            EXPECT_THAT(scene.executor.writers, Contains(SequenceSlot{0}));
        }
    }
}

// One block or one row, which an aborted request has left.
TEST(Steps, AreNeededUntilMemoryThatIsFencedIsFree) {
    for (const bool has_kv : {false, true}) {
        EngineScene scene({.num_blocks = has_kv ? 8 : 0, .num_state_rows = has_kv ? 0 : 4, .lag_steps = 2});
        const RequestId request = scene.submit(scene.history("a", {5}, 20));
        scene.step();
        scene.abort(request);
        ASSERT_TRUE(scene.engine.publication().empty());
        scene.step();  // the slot's end
        ASSERT_FALSE(scene.engine.scheduler().owes_ends());
        const int32_t num_fenced =
            has_kv ? scene.engine.cache().kv().pool().num_fenced() : scene.engine.cache().state().pool().num_fenced();
        ASSERT_EQ(num_fenced, 1);
        EXPECT_FALSE(scene.engine.idle());
        EXPECT_EQ(scene.run(), 1);
        scene.expect_home();
    }
}

TEST(Steps, AFreshExecutorHearsOfNoSlotThatEnded) {
    EngineScene scene;
    const RequestId request = scene.submit(scene.history("a", kPrompt, 2));
    while (scene.engine.find(request) != nullptr) scene.step();
    ASSERT_TRUE(scene.engine.scheduler().owes_ends());
    HashExecutor fresh({.pools = scene.options.pools()});
    scene.engine.replace_executor(fresh);
    scene.complete(scene.history("b", kPrompt, 2));
    EXPECT_TRUE(fresh.violations().empty());
    EXPECT_TRUE(scene.log.plans.at(2).finished_slots.empty());
}

}  // namespace
}  // namespace verbatim::tests
