// Windows on the CPU: what is drafted changes nothing but how many tokens a step gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "kernels/cpu/cpu_executor.h"
#include "reference/reference_executor.h"
#include "tests/kernels/poisoned_model.h"
#include "tests/kernels/window_run.h"
#include "tests/reference/families.h"

namespace verbatim::tests {
namespace {

using reference::Architecture;
using reference::Profile;

constexpr int32_t kMaxLog = 12;

WindowCounts run_on_cpu(const SceneModel& model, int32_t num_threads, uint64_t seed, Profile profile) {
    cpu::CpuExecutor executor(model.model.config, model.model.weights,
                              {.pools = {.block_size = 5, .num_blocks = 60, .num_state_rows = 4},
                               .max_log_tokens = kMaxLog,
                               .num_threads = num_threads,
                               .profile = profile});
    return run_windows(model, executor, 5, 15, 8, kMaxLog, seed);
}

TEST(CpuWindows, TokensLogitsAndStatesAreThoseOfPlainDecoding) {
    for (const Family& family : kAllFamilies) {
        WindowCounts all;
        for (uint64_t seed = 1; seed <= 3; ++seed) {
            const SceneModel model(family.draw(seed), seed);
            const WindowCounts counts = run_on_cpu(model, seed == 2 ? 3 : 1, seed, Profile::kExact);
            if (::testing::Test::HasFailure()) FAIL() << family.name() << ", seed " << seed;
            all.accepted_drafts += counts.accepted_drafts;
            all.rolled_back += counts.rolled_back;
            all.replayed += model.has_state ? counts.replayed : 1;
            all.moves += model.has_state ? counts.moves : 1;
            all.unwritten_rows += counts.unwritten_rows;
        }
        EXPECT_GT(all.accepted_drafts, 20);
        EXPECT_GT(all.rolled_back, 20);
        EXPECT_GT(all.replayed, 0);
        EXPECT_GT(all.moves, 0);
        EXPECT_GT(all.unwritten_rows, 0);
    }
}

TEST(CpuWindows, TensorProfilesEqualPlainDecoding) {
    const SceneModel model(reference::draw_small_config(Architecture::kGraniteHybrid, 4), 4, Profile::kTensorSm90);
    EXPECT_GT(run_on_cpu(model, 2, 4, Profile::kTensorSm90).accepted_drafts, 0);
}

// The token drawn at some place makes what follows it NaN: a window that holds it ends there, wherever it begins, like
// plain decoding.
TEST(CpuWindows, AFaultIsReportedForItsRow) {
    constexpr int64_t kPromptTokens = 6;
    constexpr int64_t kFaultAt = 5;  // of the output
    const SceneModel sound(reference::draw_small_config(Architecture::kGraniteHybrid, 8), 8);
    const PlainRun right(sound, sound.tokens(kPromptTokens, 3), {.temperature = 1, .seed = 5}, kFaultAt + 8);
    const TokenId poison = right.tokens[kPromptTokens + kFaultAt];
    ASSERT_EQ(std::ranges::count(std::span(right.tokens).first(kPromptTokens + kFaultAt), poison), 0);
    const PoisonedModel model(Architecture::kGraniteHybrid, Profile::kExact, poison);
    for (int64_t begin = 0; begin <= kFaultAt; ++begin) {  // tokens that come one by one, before the window
        cpu::CpuExecutor cpu(model.scene.model.config, model.scene.model.weights,
                             {.pools = {.num_blocks = 2, .num_state_rows = 1}, .max_log_tokens = 7});
        reference::ReferenceExecutor beside(model.scene.model.config, model.scene.model.weights);
        for (reference::NumericExecutor* executor :
             {static_cast<reference::NumericExecutor*>(&cpu), static_cast<reference::NumericExecutor*>(&beside)}) {
            Scene scene(model.scene, *executor, 16);
            const auto first = right.tokens.begin();
            scene.next().start({.slot = 0,
                                .tokens = {first, first + kPromptTokens + begin},
                                .sampling = {.temperature = 1, .seed = 5},
                                .num_prompt_tokens = kPromptTokens});
            scene.compute({.slot = 0,
                           .num_new_tokens = static_cast<int32_t>(kPromptTokens + begin) + 7,
                           .num_sampled_positions = 8,
                           .state_dst = 0,
                           .appended = {first + kPromptTokens + begin, first + kPromptTokens + begin + 7},
                           .new_blocks = {0, 1}});
            scene.step();
            const SampledTokens& drawn = scene.result.drawn.at(0);
            EXPECT_EQ(drawn.tokens.count, kFaultAt + 1 - begin);
            EXPECT_EQ(drawn.fault_layer, model.fault_layer());
        }
    }
}

}  // namespace
}  // namespace verbatim::tests
