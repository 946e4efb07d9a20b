// What is sampled under masks is what the uncached reference samples under them: in every batch, after a preemption,
// attached or forked, and whenever the masks come.
#include <rapidcheck/gtest.h>

#include "engine/base/prng.h"
#include "tests/properties/numeric_scene.h"
#include "tests/support/random_cases.h"
#include "tests/support/token_grammar.h"

namespace verbatim::tests {
namespace {

// Masks come at once, some steps late, or while the step that needs them runs: returns how many did.
int64_t run(NumericScene& scene, Prng& prng) {
    const uint64_t one_in = 1 + prng.below(3);
    const auto now = [&](RequestId) { return prng.below(one_in) == 0; };
    int64_t num_late = 0;
    const bool takes_late = scene.executor.complete_masks_with([&] {
        if (scene.engine.lacks_masks()) num_late += supply_masks(scene.engine);
    });
    CHECK(takes_late, "the executor wants all masks from the beginning");
    for (int steps = 0; scene.step(); ++steps) {
        CHECK_LT(steps, 3000);
        supply_masks(scene.engine, now);
        for (const auto& [id, asked] : scene.asked()) scene.engine.expect_late_masks(id, prng.below(2) == 0);
    }
    (void)scene.executor.complete_masks_with(nullptr);
    return num_late;
}

ChatRequest sampled(ChatRequest request, Prng& prng) {
    request.seed = prng.next();
    request.sampling = {.temperature = 0.9F, .repetition_penalty = 1.3F, .frequency_penalty = 0.3F};
    if (prng.below(2) == 0) request.sampling.min_p = 0.05F;
    if (prng.below(2) == 0) request.sampling.top_k = 5;
    if (prng.below(2) == 0) request.sampling.logit_bias = {{1, 3.5F}, {4, -100.0F}};
    if (prng.below(2) == 0) {
        request.sampling.min_tokens = 5;
        request.sampling.end_tokens = {2, 9, 11};
    }
    return request;
}

// Requests with grammars and without in a memory that is too small for all, then turns behind them.
// Returns how many masks came in the step that needed them.
int64_t converse(NumericScene& scene, uint64_t seed) {
    Prng prng(seed);
    const auto with = [&](ChatRequest request) {
        return with_grammar(sampled(std::move(request), prng), prng.below(3), scene.model.config.vocab_size);
    };
    for (uint64_t i = 0; i < 5; ++i) {
        const auto num_prompt = static_cast<int64_t>(1 + prng.below(20));
        ChatRequest request = scene.history(std::to_string(i), scene.text(seed + i, num_prompt), 14);
        scene.submit(i % 2 == 0 ? with(std::move(request)) : sampled(std::move(request), prng));
    }
    const int64_t num_late = run(scene, prng);
    CHECK(scene.engine.fork(scene.key("2"), "fork").has_value());
    scene.submit(with(scene.suffix("2", scene.text(seed + 7, 3), 9)));
    scene.submit(with(scene.suffix("fork", scene.text(seed + 8, 4), 9)));
    scene.submit(with(scene.regenerate("1", 5)));
    return num_late + run(scene, prng);
}

SceneOptions small_options(uint64_t seed) {
    SceneOptions options;
    options.block_size = 4;
    options.num_blocks = 24 + static_cast<int32_t>(seed % 8);
    options.num_state_rows = 9;
    options.step_tokens = 9 + static_cast<int32_t>(seed % 30);
    return options;
}

RC_GTEST_PROP(MaskProperties, TokensAreTheReferencesUnderTheirMasks, ()) {
    const auto seed = *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<uint64_t>(0, 1 << 30)).as("seed");
    SceneOptions options = small_options(seed);
    options.max_window = *rc::gen::element(1, 4).as("max_window");
    options.verify_tokens = options.max_window > 1 ? *rc::gen::element(0, 8).as("verify_tokens") : 0;
    NumericScene scene(seed, options);
    const int64_t num_late = converse(scene, seed);
    RC_CLASSIFY(scene.engine.stats().preemptions > 0);
    RC_CLASSIFY(num_late > 0);
    RC_ASSERT(scene.first_difference() == "");
    scene.expect_home();
}

TEST(MaskProperties, SomeOfTheseRequestsArePreemptedAndGetLateMasks) {
    int64_t preemptions = 0;
    int64_t num_late = 0;
    for (uint64_t seed = 1; seed < 7; ++seed) {
        NumericScene scene(seed, small_options(seed));
        num_late += converse(scene, seed);
        preemptions += scene.engine.stats().preemptions;
        ASSERT_EQ(scene.first_difference(), "") << seed;
    }
    EXPECT_GT(preemptions, 0);
    EXPECT_GT(num_late, 0);
}

TEST(MaskProperties, TheEmulatedDevicesTokensAreTheReferences) {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the emulator's threads are fibers of one thread, which this sanitizer does not know";
#endif
    const RandomCases cases = RandomCases::from_environment(1);
    for (uint64_t seed = cases.seed; seed < cases.seed + cases.count; ++seed) {
        NumericScene scene(seed, small_options(seed), 1, Machine::kEmulatedCuda);
        converse(scene, seed);
        ASSERT_EQ(scene.first_difference(), "") << "again with VERBATIM_SEED=" << seed;
        scene.expect_home();
    }
}

}  // namespace
}  // namespace verbatim::tests
