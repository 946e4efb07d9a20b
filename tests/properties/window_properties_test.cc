// Windows of drafts give the bits of plain decoding, for every drafter and every batch; the uncached reference, which
// computes a draft after its acceptance, confirms every operation.
#include <rapidcheck/gtest.h>

#include "engine/drafting/ngram_drafter.h"
#include "reference/lockstep_executor.h"
#include "reference/reference_executor.h"
#include "tests/properties/numeric_scene.h"
#include "tests/reference/families.h"
#include "tests/support/random_cases.h"
#include "tests/support/sanitized.h"

namespace verbatim::tests {
namespace {

SceneOptions window_options(int32_t max_window) {
    SceneOptions options;
    options.block_size = 4;
    options.num_blocks = 60;
    options.num_state_rows = 12;
    options.max_window = max_window;
    return options;
}

// Penalties count what was accepted, and nothing of what was withdrawn.
ChatRequest with_penalties(ChatRequest request, uint64_t seed) {
    request.sampling = {.temperature = 0.9F,
                        .top_k = 12,
                        .repetition_penalty = 1.4F,
                        .presence_penalty = 0.6F,
                        .frequency_penalty = 0.3F};
    request.seed = seed;
    return request;
}

// Of every other request also what changes single tokens' logits, and what sorts more out.
ChatRequest with_everything(ChatRequest request, uint64_t seed) {
    request = with_penalties(std::move(request), seed);
    if (seed % 2 == 0) return request;
    request.sampling.top_k = 0;
    request.sampling.min_p = 0.05F;
    request.sampling.logit_bias = {{1, 3.5F}, {4, -100.0F}, {9, 1.25F}};
    request.sampling.min_tokens = 7;
    request.sampling.end_tokens = {2, 9, 11};
    return request;
}

// Three conversations, then a second turn of one of them, and of a fork of it.
void converse(NumericScene& scene, uint64_t seed) {
    for (int i = 0; i < 3; ++i) {
        const std::string id = std::to_string(i);
        const auto num_prompt = static_cast<int64_t>(1 + (seed >> (8 * i)) % 24);
        scene.submit(with_everything(scene.history(id, scene.text(seed + i, num_prompt), 12), seed + i));
    }
    scene.run();
    ASSERT_TRUE(scene.engine.fork(scene.key("1"), "fork").has_value());
    scene.submit(with_penalties(scene.suffix("1", scene.text(seed + 5, 3), 12), seed));
    scene.submit(scene.suffix("fork", scene.text(seed + 6, 2), 12));
    scene.run();
}

// The same on a device: the kernels in the emulator, its threads in any order.
TEST(WindowProperties, TheEmulatedDevicesWindowsEqualPlainDecoding) {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the emulator's threads are fibers of one thread, which this sanitizer does not know";
#endif
    const RandomCases cases = RandomCases::from_environment(kSanitized ? 1 : 4);
    EngineStats sum;
    for (uint64_t seed = cases.seed; seed < cases.seed + cases.count; ++seed) {
        NumericScene scene(seed, window_options(2 + static_cast<int32_t>(seed % 8)), 1, Machine::kEmulatedCuda);
        converse(scene, seed);
        sum.accepted_tokens += scene.engine.stats().accepted_tokens;
        sum.rolled_back_tokens += scene.engine.stats().rolled_back_tokens;
        ASSERT_EQ(scene.first_difference(), "") << "again with VERBATIM_SEED=" << seed;
        scene.expect_home();
    }
    EXPECT_GT(sum.accepted_tokens + sum.rolled_back_tokens, 0);
}

// Drafted in the fast profile in one batch, verified in windows: exact bits, and no trace of the drafts.
RC_GTEST_PROP(WindowProperties, WhatIsDraftedInAnotherArithmeticChangesNothing, ()) {
    const auto seed = *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<uint64_t>(0, 1 << 30)).as("seed");
    SceneOptions options = window_options(*rc::gen::inRange<int32_t>(2, 10).as("max_window"));
    options.verify_tokens = *rc::gen::inRange<int32_t>(2, 20).as("verify_tokens");
    NumericScene scene(seed, options);
    converse(scene, seed);
    RC_ASSERT(scene.engine.stats().draft_path_tokens > 0);
    RC_ASSERT(scene.engine.stats().accepted_tokens > 0);
    RC_ASSERT(scene.first_difference() == "");
    scene.expect_home();
}

// Decoding writes a row now and then, and its log stands for the tokens between: with drafts and without.
RC_GTEST_PROP(WindowProperties, RowsThatAreLeftBehindChangeNothing, ()) {
    const auto seed = *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<uint64_t>(0, 1 << 30)).as("seed");
    SceneOptions options = window_options(*rc::gen::element(1, 2, 5).as("max_window"));
    options.max_state_lag_tokens = *rc::gen::inRange<int32_t>(1, 12).as("max_row_lag");
    NumericScene scene(seed, options);
    converse(scene, seed);
    RC_ASSERT(scene.engine.cache().state().enabled() == (scene.engine.stats().unwritten_rows > 0));
    RC_ASSERT(scene.first_difference() == "");
    scene.expect_home();
}

RC_GTEST_PROP(WindowProperties, DraftsChangeNothingButTheNumberOfSteps, ()) {
    const auto seed = *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<uint64_t>(0, 1 << 30)).as("seed");
    const auto max_window = *rc::gen::inRange<int32_t>(2, 10).as("max_window");
    NumericScene scene(seed, window_options(max_window));
    converse(scene, seed);
    const EngineStats& stats = scene.engine.stats();
    RC_ASSERT(stats.windows > 0);
    RC_ASSERT(stats.accepted_tokens > 0);
    RC_ASSERT(stats.rolled_back_tokens > 0);
    RC_ASSERT(stats.steps < 5 * 12 + stats.preemptions);
    RC_ASSERT(scene.first_difference() == "");
    scene.expect_home();
}

// Four requests of 55 tokens, and room for 72: all of them come in, and then give way to each other between windows.
RC_GTEST_PROP(WindowProperties, PreemptedBetweenWindowsEqualsUninterrupted, ()) {
    const auto seed = *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<uint64_t>(0, 1 << 30)).as("seed");
    SceneOptions options = window_options(*rc::gen::inRange<int32_t>(2, 10).as("max_window"));
    options.num_blocks = 72 / options.block_size;
    NumericScene scene(seed, options);
    for (int i = 0; i < 4; ++i) {
        const auto number = static_cast<uint64_t>(i);
        scene.submit(
            with_everything(scene.history(std::to_string(i), scene.text(seed + number, 15), 40), seed + number));
    }
    scene.run();
    RC_ASSERT((scene.engine.stats().preemptions > 0) == scene.has_kv());
    RC_ASSERT(scene.engine.stats().accepted_tokens > 0);
    RC_ASSERT(scene.first_difference() == "");
    scene.expect_home();
}

// A draft that is wrong at every place of a window of eight, in every family; and none that is.
TEST(WindowProperties, RollbackAtEveryPositionOfAWindow) {
    for (const Family& family : kAllFamilies) {
        for (int64_t wrong = 0; wrong <= 7; ++wrong) {
            NumericScene scene(family.draw(3), 3, window_options(8));
            ReferenceOracle oracle(scene.reference);
            class Scripted final : public Drafter {
            public:
                Scripted(NumericScene& scene, ReferenceOracle& oracle, int64_t wrong)
                    : scene_(scene), oracle_(oracle), wrong_(wrong) {}
                void draft(std::span<DraftJob> jobs) override {
                    for (DraftJob& job : jobs) {
                        const SamplingParams& sampling = scene_.engine.find(job.request)->request.sampling;
                        for (int64_t i = 0; i < job.max_drafts; ++i) {
                            const TokenId token = oracle_.token(job, sampling, i);
                            job.drafts.push_back(i == wrong_ ? (token + 1) % scene_.model.config.vocab_size : token);
                        }
                    }
                }
                void ended(RequestId) override {}

            private:
                NumericScene& scene_;
                ReferenceOracle& oracle_;
                int64_t wrong_;
            } drafter(scene, oracle, wrong);
            scene.engine.draft_with(&drafter);
            scene.submit(with_penalties(scene.history("a", scene.text(7, 9), 20), 7));
            scene.run();
            EXPECT_EQ(scene.first_difference(), "") << wrong;
            EXPECT_GT(scene.engine.stats().accepted_tokens, wrong == 0 ? -1 : 0);
            EXPECT_EQ(scene.engine.stats().rolled_back_tokens > 0, wrong < 7) << wrong;
            scene.expect_home();
        }
    }
}

// Side by side with the reference, operation by operation, prompts and windows in one step.
TEST(WindowProperties, EveryOperationOfAWindowEqualsPlainDecoding) {
    for (const Family& family : kAllFamilies) {
        SceneOptions options = window_options(6);
        options.step_tokens = 24;
        const reference::Model model = reference::make_random_model(family.draw(9), 9);
        reference::ReferenceModel reference_model(model.config, model.weights);
        const auto geometry = reference::geometry(model.config);
        if (geometry.kv_bytes_per_token == 0) options.num_blocks = 0;
        if (geometry.state_bytes_per_row == 0) options.num_state_rows = 0;
        cpu::CpuExecutor cpu(model.config, model.weights,
                             {.pools = options.pools(), .max_log_tokens = options.max_window - 1});
        reference::ReferenceExecutor witness(model.config, model.weights);
        reference::LockstepExecutor lockstep(cpu, witness);
        EngineRig rig(options, lockstep, model.config.vocab_size);
        ReferenceOracle oracle(reference_model);
        AdversaryDrafter adversary(
            [&](const DraftJob& job, int64_t ahead) {
                return std::optional(oracle.token(job, rig.engine.find(job.request)->request.sampling, ahead));
            },
            model.config.vocab_size, 9);
        rig.engine.draft_with(&adversary);
        for (int i = 0; i < 4; ++i) {
            std::vector<TokenId> prompt;
            for (int k = 0; k < 5 + 6 * i; ++k) prompt.push_back((k * 7 + i) % model.config.vocab_size);
            rig.submit(with_penalties(rig.history(std::to_string(i), prompt, 14), 9));
            rig.step();
        }
        rig.run();
        EXPECT_TRUE(lockstep.identical()) << to_string(*lockstep.first_difference());
        EXPECT_GT(lockstep.counts().compared_operations, 0);
        EXPECT_GE(lockstep.counts().compared_states, 4);
        EXPECT_GT(rig.engine.stats().accepted_tokens, 0);
        EXPECT_GT(rig.engine.stats().rolled_back_tokens, 0);
        rig.expect_home();
    }
}

// What repeats itself is found in itself.
TEST(WindowProperties, RepeatedNgramsAreAccepted) {
    SceneOptions options = window_options(5);
    options.max_window = 1;  // the scene's own adversary stays out
    NumericScene plain(reference::draw_small_config(reference::Architecture::kGraniteHybrid, 3), 3, options);
    const FinishedEvent told = plain.complete(plain.history("a", plain.text(1, 12), 60));
    const std::vector<TokenId> output = plain.streamed(told.request);
    options.max_window = 5;
    NumericScene scene(reference::draw_small_config(reference::Architecture::kGraniteHybrid, 3), 3, options);
    NgramDrafter ngram;
    scene.engine.draft_with(&ngram);
    const FinishedEvent again = scene.complete(scene.history("a", scene.text(1, 12), 60));
    EXPECT_EQ(scene.streamed(again.request), output);
    EXPECT_EQ(scene.first_difference(), "");
    EXPECT_GT(scene.engine.stats().accepted_tokens, 0);
    EXPECT_LT(scene.engine.stats().steps, plain.engine.stats().steps);
}

}  // namespace
}  // namespace verbatim::tests
