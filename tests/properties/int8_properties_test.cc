// Quantised models in the profiles exact.int8, exact.fp8 and exact: whatever the engine does with cache, chunks,
// batches and drafts, the bits are those of the uncached reference.
#include <gtest/gtest.h>

#include <iterator>

#include "engine/base/prng.h"
#include "reference/model/presets.h"
#include "tests/properties/numeric_scene.h"
#include "tests/support/random_cases.h"

namespace verbatim::tests {
namespace {

constexpr const char* kInt8Presets[] = {"tiny-granite",    "tiny-llama",       "tiny-mamba2",
                                        "tiny-nemotron-h", "tiny-granite-moe", "tiny-qwen3.5-moe"};

SceneOptions int8_options(Prng& prng) {
    const auto one_of = [&](std::initializer_list<int32_t> all) { return *(all.begin() + prng.below(all.size())); };
    SceneOptions options;
    options.block_size = one_of({1, 3, 4, 16});
    options.num_blocks = 240 / options.block_size + 10;
    options.num_state_rows = 24;
    options.step_tokens = one_of({1, 5, 16, 63, 512});
    options.lag_steps = one_of({0, 2});
    options.max_window = one_of({1, 2, 5, 9});
    options.max_state_lag_tokens = one_of({0, 0, 4});
    return options;
}

// Three conversations at a time, then a second turn of one of them and of a fork of it.
void converse_quantised(NumericScene& scene, uint64_t seed) {
    for (int i = 0; i < 3; ++i) {
        const auto length = static_cast<int64_t>(1 + (seed * 31 + static_cast<uint64_t>(i) * 17) % 40);
        ChatRequest request = scene.history(std::to_string(i), scene.text(seed + static_cast<uint64_t>(i), length), 10);
        request.sampling.temperature = i == 0 ? 0.0F : 1.0F;
        request.seed = seed;
        scene.submit(std::move(request));
    }
    scene.run();
    ASSERT_TRUE(scene.engine.fork(scene.key("1"), "fork").has_value());
    scene.submit(scene.suffix("1", scene.text(seed + 5, 9), 8));
    scene.submit(scene.suffix("fork", scene.text(seed + 6, 2), 8));
    scene.run();
}

TEST(Int8Properties, CacheChunksBatchesAndDraftsChangeNoBit) {
    constexpr uint64_t kUsualCases = 24;
    const RandomCases cases = RandomCases::from_environment(kUsualCases);
    EngineStats sum;
    for (uint64_t seed = cases.seed; seed < cases.seed + cases.count; ++seed) {
        Prng prng(seed);
        const char* preset = kInt8Presets[seed % std::size(kInt8Presets)];
        NumericScene scene(in_whole_blocks(*reference::preset(preset)), seed, int8_options(prng),
                           static_cast<int32_t>(1 + seed % 2), Machine::kCpuInt8);
        ASSERT_EQ(scene.computing->numerics_id(), "exact.int8/2");
        converse_quantised(scene, seed);
        ASSERT_EQ(scene.first_difference(), "") << preset << ", again with VERBATIM_SEED=" << seed;
        scene.expect_home();
        sum.reused_tokens += scene.engine.stats().reused_tokens;
        sum.accepted_tokens += scene.engine.stats().accepted_tokens;
        sum.rolled_back_tokens += scene.engine.stats().rolled_back_tokens;
    }
    if (cases.count < kUsualCases) return;  // so many reach all of it
    EXPECT_GT(sum.reused_tokens, 0);
    EXPECT_GT(sum.accepted_tokens, 0);
    EXPECT_GT(sum.rolled_back_tokens, 0);
}

TEST(Int8Properties, OnAnEmulatedDeviceNeither) {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the emulator's threads are fibers of one thread, which this sanitizer does not know";
#endif
    const RandomCases cases = RandomCases::from_environment(6);
    for (uint64_t seed = cases.seed; seed < cases.seed + cases.count; ++seed) {
        Prng prng(seed);
        const char* preset = kInt8Presets[seed % std::size(kInt8Presets)];
        NumericScene scene(in_whole_blocks(*reference::preset(preset)), seed, int8_options(prng), 1,
                           Machine::kEmulatedCudaInt8);
        ASSERT_EQ(scene.computing->numerics_id(), "exact.int8/2");
        converse_quantised(scene, seed);
        ASSERT_EQ(scene.first_difference(), "") << preset << ", again with VERBATIM_SEED=" << seed;
        ASSERT_TRUE(scene.emulator.findings().empty()) << scene.emulator.findings().front().text;
    }
}

// Rows of several groups of 128.
TEST(Fp8Properties, CacheChunksBatchesAndDraftsChangeNoBit) {
    constexpr uint64_t kUsualCases = 12;
    const RandomCases cases = RandomCases::from_environment(kUsualCases);
    EngineStats sum;
    for (uint64_t seed = cases.seed; seed < cases.seed + cases.count; ++seed) {
        Prng prng(seed);
        const char* preset = kInt8Presets[seed % std::size(kInt8Presets)];
        constexpr int32_t kHidden = 256;
        NumericScene scene(in_whole_blocks(*reference::preset(preset), kHidden), seed, int8_options(prng),
                           static_cast<int32_t>(1 + seed % 2), Machine::kCpuFp8);
        ASSERT_EQ(scene.computing->numerics_id(), "exact.fp8/1");
        converse_quantised(scene, seed);
        ASSERT_EQ(scene.first_difference(), "") << preset << ", again with VERBATIM_SEED=" << seed;
        scene.expect_home();
        sum.reused_tokens += scene.engine.stats().reused_tokens;
        sum.accepted_tokens += scene.engine.stats().accepted_tokens;
        sum.rolled_back_tokens += scene.engine.stats().rolled_back_tokens;
    }
    if (cases.count < kUsualCases) return;
    EXPECT_GT(sum.reused_tokens, 0);
    EXPECT_GT(sum.accepted_tokens, 0);
    EXPECT_GT(sum.rolled_back_tokens, 0);
}

// As Q4_K_M files mix them, and float4, in either profile. The rows of 96 and of 32 stay bf16.
TEST(BlockProperties, OfTypesWithLargeBlocksNothingChangesABitEither) {
    constexpr uint64_t kUsualCases = 12;
    const RandomCases cases = RandomCases::from_environment(kUsualCases);
    EngineStats sum;
    for (uint64_t seed = cases.seed; seed < cases.seed + cases.count; ++seed) {
        Prng prng(seed);
        const char* preset = kInt8Presets[seed % std::size(kInt8Presets)];
        const bool in_int8 = seed / std::size(kInt8Presets) % 2 == 0;
        constexpr int32_t kHidden = 256;
        NumericScene scene(in_whole_blocks(*reference::preset(preset), kHidden), seed, int8_options(prng),
                           static_cast<int32_t>(1 + seed % 2), in_int8 ? Machine::kCpuMixedInt8 : Machine::kCpuMixed);
        ASSERT_EQ(scene.computing->numerics_id(), in_int8 ? "exact.int8/2" : "exact.blocks/1");
        converse_quantised(scene, seed);
        ASSERT_EQ(scene.first_difference(), "") << preset << ", again with VERBATIM_SEED=" << seed;
        scene.expect_home();
        sum.reused_tokens += scene.engine.stats().reused_tokens;
        sum.accepted_tokens += scene.engine.stats().accepted_tokens;
    }
    if (cases.count < kUsualCases) return;
    EXPECT_GT(sum.reused_tokens, 0);
    EXPECT_GT(sum.accepted_tokens, 0);
}

}  // namespace
}  // namespace verbatim::tests
