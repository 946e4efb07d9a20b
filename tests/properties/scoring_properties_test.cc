// The logits of a prompt's positions are the uncached reference's, each position's once: in whatever chunks and
// batches, behind a cached prefix, and after a preemption. NumericScene::first_difference() compares them.
#include <rapidcheck/gtest.h>

#include "reference/lockstep_executor.h"
#include "reference/reference_executor.h"
#include "tests/properties/numeric_scene.h"
#include "tests/support/random_cases.h"
#include "tests/support/sanitized.h"

namespace verbatim::tests {
namespace {

uint64_t score_seed() { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<uint64_t>(0, 1 << 30)).as("seed"); }
int64_t score_length(int64_t least, int64_t below, const char* what) {
    return *rc::gen::inRange(least, below).as(what);
}

SceneOptions score_options() {
    SceneOptions options;
    options.block_size = *rc::gen::element(1, 3, 16).as("block_size");
    options.num_blocks = 400 / options.block_size + 10;
    options.num_state_rows = 24;
    options.step_tokens = *rc::gen::element(1, 2, 5, 16, 63, 512).as("step_tokens");
    options.lag_steps = *rc::gen::inRange(0, 3).as("lag_steps");
    options.max_window = *rc::gen::element(1, 2, 5).as("max_window");
    options.admission = *rc::gen::element(AdmissionOrder::kArrival, AdmissionOrder::kFewestTokens).as("admission");
    return options;
}

ChatRequest scored(ChatRequest request, int64_t from, uint64_t seed) {
    request.scored_from = from;
    request.sampling.temperature = 1;
    request.seed = seed;
    return request;
}

RC_GTEST_PROP(ScoringProperties, AnyChunkAndBatchGiveThePromptsLogits, ()) {
    const uint64_t seed = score_seed();
    NumericScene scene(seed, score_options());
    const int64_t num_requests = score_length(1, 5, "requests");
    for (int64_t i = 0; i < num_requests; ++i) {
        const int64_t length = score_length(1, 70, "length");
        const int64_t output = score_length(0, 4, "output");
        const ChatRequest plain = scene.history(std::to_string(i), scene.text(seed + i, length), output);
        // The first request has at least one row of logits.
        const int64_t last = i == 0 ? length : length + 3;
        scene.submit(scored(plain, score_length(0, last, "from"), seed));
        if (*rc::gen::arbitrary<bool>().as("step between")) scene.step();
    }
    scene.run();
    RC_ASSERT(scene.first_difference() == "");
    scene.expect_home();
}

// More positions than a step scores.
TEST(ScoringProperties, AStepScoresABoundedNumberOfPositions) {
    SceneOptions options;
    options.num_blocks = 200;
    options.step_tokens = 2048;
    NumericScene scene(5, options);
    const int64_t length = 2 * kMaxScoredPositions + 40;
    scene.submit(scored(scene.history("a", scene.text(1, length), 2), 0, 1));
    scene.submit(scored(scene.history("b", scene.text(2, 90), 2), 30, 2));
    scene.run();
    int64_t num_full = 0;
    for (const StepPlan& plan : scene.log.plans) {
        int32_t num_scored = 0;
        for (const ScheduledSequence& sequence : plan.sequences) num_scored += sequence.num_scored_positions;
        ASSERT_LE(num_scored, kMaxScoredPositions);
        num_full += num_scored == kMaxScoredPositions ? 1 : 0;
    }
    EXPECT_GE(num_full, 2);
    EXPECT_EQ(scene.first_difference(), "");
}

// A continuation is scored behind the state of its context: positions before the first scored one are reused.
RC_GTEST_PROP(ScoringProperties, AContinuationIsScoredBehindACachedContext, ()) {
    const uint64_t seed = score_seed();
    SceneOptions options = score_options();
    options.lookup = LookupMode::kPrefix;
    NumericScene scene(seed, options);
    const int64_t context = score_length(2, 60, "context");
    const std::vector<TokenId> tokens = scene.text(seed, context);
    scene.complete(scene.history("context", tokens, 1));
    const int64_t continued = score_length(1, 20, "continuation");
    const std::vector<TokenId> all = tokens + scene.text(seed + 1, continued);
    const int64_t from = score_length(0, context + continued + 1, "from");
    const FinishedEvent event = scene.complete(scored(scene.history("all", all, 0), from, seed));
    // The context's states are at its last token and behind it.
    const int64_t first_row = std::max<int64_t>(from - 1, 0);
    const int64_t reusable = first_row >= context ? context : first_row >= context - 1 ? context - 1 : 0;
    RC_ASSERT((scene.has_state() ? event.num_reused_tokens == reusable : event.num_reused_tokens <= first_row));
    RC_ASSERT(scene.not_reused(NotReused::kScored) > 0);
    RC_ASSERT(scene.first_difference() == "");
    scene.expect_home();
}

RC_GTEST_PROP(ScoringProperties, PreemptedRequestsAreScoredOnce, ()) {
    const uint64_t seed = score_seed();
    SceneOptions options = score_options();
    options.num_blocks = 90 / options.block_size + 1;
    options.step_tokens = *rc::gen::element(5, 16).as("step_tokens");
    NumericScene scene(seed, options);
    for (uint64_t i = 0; i < 4; ++i)
        scene.submit(scored(scene.history(std::to_string(i), scene.text(seed + i, 20), 50), 0, seed + i));
    scene.run();
    RC_ASSERT((scene.engine.stats().preemptions > 0) == scene.has_kv());
    RC_ASSERT(scene.first_difference() == "");
    scene.expect_home();
}

TEST(ScoringProperties, TheEmulatedDeviceScoresAsTheReference) {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the emulator's threads are fibers of one thread, which this sanitizer does not know";
#endif
    const RandomCases cases = RandomCases::from_environment(kSanitized ? 1 : 4);
    for (uint64_t seed = cases.seed; seed < cases.seed + cases.count; ++seed) {
        SceneOptions options;
        options.block_size = 4;
        options.num_blocks = 60;
        options.step_tokens = 16;
        NumericScene scene(seed, options, 1, Machine::kEmulatedCuda);
        scene.submit(scored(scene.history("a", scene.text(seed, 21), 3), 4, seed));
        scene.submit(scene.history("b", scene.text(seed + 1, 5), 6));
        scene.submit(scored(scene.history("c", scene.text(seed + 2, 9), 0), 0, seed));
        scene.run();
        ASSERT_EQ(scene.first_difference(), "") << "again with VERBATIM_SEED=" << seed;
        scene.expect_home();
    }
}

// The reference as an executor, step by step with the CPU's: every operation, and every row of logits.
TEST(ScoringProperties, ALockstepComparesScoredRows) {
    NumericScene scene(11, SceneOptions{});
    reference::ReferenceExecutor uncached(scene.model.config, scene.model.weights);
    reference::LockstepExecutor lockstep(*scene.computing, uncached, {});
    SceneOptions options;
    options.step_tokens = 7;
    options.num_blocks = scene.pools.num_blocks;
    options.num_state_rows = scene.pools.num_state_rows;
    EngineRig rig(options, lockstep, scene.model.config.vocab_size);
    rig.submit(scored(rig.history("a", scene.text(1, 23), 2), 5, 1));
    rig.submit(scored(rig.history("b", scene.text(2, 9), 0), 0, 2));
    rig.run();
    EXPECT_TRUE(lockstep.identical());
    // Rows 4..21 and 22; then 0..8; and the second token.
    EXPECT_EQ(lockstep.counts().compared_logits, (18 + 1 + 9 + 1) * int64_t{scene.model.config.vocab_size});
}

}  // namespace
}  // namespace verbatim::tests
