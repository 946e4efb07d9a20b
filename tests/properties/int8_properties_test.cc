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

constexpr const char* kPresets[] = {"tiny-granite",    "tiny-llama",       "tiny-mamba2",
                                    "tiny-nemotron-h", "tiny-granite-moe", "tiny-qwen3.5-moe"};

SceneOptions world_options(Prng& prng) {
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

// The world of a seed.
struct QuantisedWorld {
    Machine machine;
    const char* numerics_id;
    int32_t hidden_size = 64;
    int32_t num_threads = 1;
};

// So many worlds, or as many as the environment says; in so many, drafts are accepted and rolled back, and prompts
// reused.
template <typename WorldOf>
void expect_no_bit_changes(uint64_t usual_cases, const WorldOf& world_of) {
    const RandomCases cases = RandomCases::from_environment(usual_cases);
    EngineStats sum;
    for (uint64_t seed = cases.seed; seed < cases.seed + cases.count; ++seed) {
        Prng prng(seed);
        const QuantisedWorld world = world_of(seed);
        const char* preset = kPresets[seed % std::size(kPresets)];
        NumericScene scene(in_whole_blocks(*reference::preset(preset), world.hidden_size), seed, world_options(prng),
                           world.num_threads, world.machine);
        ASSERT_EQ(scene.computing->numerics_id(), world.numerics_id);
        converse_quantised(scene, seed);
        ASSERT_EQ(scene.first_difference(), "") << preset << ", again with VERBATIM_SEED=" << seed;
        ASSERT_TRUE(scene.emulator.findings().empty()) << scene.emulator.findings().front().text;
        scene.expect_home();
        sum.reused_tokens += scene.engine.stats().reused_tokens;
        sum.accepted_tokens += scene.engine.stats().accepted_tokens;
        sum.rolled_back_tokens += scene.engine.stats().rolled_back_tokens;
    }
    if (cases.count < usual_cases) return;  // so many reach all of it
    EXPECT_GT(sum.reused_tokens, 0);
    EXPECT_GT(sum.accepted_tokens, 0);
    EXPECT_GT(sum.rolled_back_tokens, 0);
}

int32_t one_or_two(uint64_t seed) { return static_cast<int32_t>(1 + seed % 2); }

TEST(Int8Properties, CacheChunksBatchesAndDraftsChangeNoBit) {
    expect_no_bit_changes(24, [](uint64_t seed) {
        return QuantisedWorld{
            .machine = Machine::kCpuInt8, .numerics_id = "exact.int8/2", .num_threads = one_or_two(seed)};
    });
}

TEST(Int8Properties, OnAnEmulatedDeviceNeither) {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the emulator's threads are fibers of one thread, which this sanitizer does not know";
#endif
    expect_no_bit_changes(6, [](uint64_t) {
        return QuantisedWorld{.machine = Machine::kEmulatedCudaInt8, .numerics_id = "exact.int8/2"};
    });
}

// Rows of several groups of 128.
TEST(Fp8Properties, CacheChunksBatchesAndDraftsChangeNoBit) {
    expect_no_bit_changes(12, [](uint64_t seed) {
        return QuantisedWorld{.machine = Machine::kCpuFp8,
                              .numerics_id = "exact.fp8/1",
                              .hidden_size = 256,
                              .num_threads = one_or_two(seed)};
    });
}

TEST(Fp8Properties, OnAnEmulatedDeviceNeither) {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the emulator's threads are fibers of one thread, which this sanitizer does not know";
#endif
    expect_no_bit_changes(6, [](uint64_t) {
        return QuantisedWorld{.machine = Machine::kEmulatedCudaFp8, .numerics_id = "exact.fp8/1", .hidden_size = 256};
    });
}

// As Q4_K_M files mix them, and float4, in either profile. The rows of 96 and of 32 stay bf16.
TEST(BlockProperties, OfTypesWithLargeBlocksNothingChangesABitEither) {
    expect_no_bit_changes(12, [](uint64_t seed) {
        const bool in_int8 = seed / std::size(kPresets) % 2 == 0;
        return QuantisedWorld{.machine = in_int8 ? Machine::kCpuMixedInt8 : Machine::kCpuMixed,
                              .numerics_id = in_int8 ? "exact.int8/2" : "exact.blocks/1",
                              .hidden_size = 256,
                              .num_threads = one_or_two(seed)};
    });
}

}  // namespace
}  // namespace verbatim::tests
