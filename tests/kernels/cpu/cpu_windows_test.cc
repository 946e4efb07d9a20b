// Windows on the CPU: what is drafted changes nothing but how many tokens a step gives.
#include <gtest/gtest.h>

#include "kernels/cpu/cpu_executor.h"
#include "tests/kernels/window_run.h"
#include "tests/reference/families.h"

namespace verbatim::tests {
namespace {

using reference::Architecture;
using reference::Profile;

constexpr int32_t kMaxLog = 12;

WindowCounts run_on_cpu(const SceneModel& model, int32_t num_threads, uint64_t seed, Profile profile) {
    cpu::CpuExecutor executor(model.model.config, model.model.weights,
                              {.block_size = 5,
                               .num_blocks = 60,
                               .num_state_rows = 4,
                               .max_log_tokens = kMaxLog,
                               .num_threads = num_threads,
                               .profile = profile});
    return run_windows(model, executor, 5, 15, 8, kMaxLog, seed);
}

TEST(CpuWindows, TokensLogitsAndStatesAreThoseOfPlainDecoding) {
    for (const Architecture family : kFamilies) {
        WindowCounts all;
        for (uint64_t seed = 1; seed <= 3; ++seed) {
            const SceneModel model(reference::draw_small_config(family, seed), seed);
            const WindowCounts counts = run_on_cpu(model, seed == 2 ? 3 : 1, seed, Profile::kExact);
            if (::testing::Test::HasFailure()) FAIL() << reference::architecture_name(family) << ", seed " << seed;
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

TEST(CpuWindows, TheTensorProfilesAreToo) {
    const SceneModel model(reference::draw_small_config(Architecture::kGraniteHybrid, 4), 4, Profile::kTensorSm90);
    EXPECT_GT(run_on_cpu(model, 2, 4, Profile::kTensorSm90).accepted_drafts, 0);
}

}  // namespace
}  // namespace verbatim::tests
