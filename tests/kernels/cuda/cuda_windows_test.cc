// Windows on the CUDA kernels in the emulator: what is drafted changes nothing but how many tokens a step gives, in any
// order of threads; a fault is a row's, and a device may fail in the middle.
#include <gtest/gtest.h>

#include <memory>

#include "kernels/cuda/cuda_executor.h"
#include "kernels/cuda/emulated_device.h"
#include "tests/kernels/cuda/schedules.h"
#include "tests/kernels/poisoned_model.h"
#include "tests/kernels/window_run.h"
#include "tests/reference/families.h"

namespace verbatim::tests {
namespace {

using reference::Architecture;
using reference::Profile;
using simt::Schedule;

constexpr int32_t kMaxLog = 12;

struct EmulatedWindows {
    EmulatedWindows(const SceneModel& model, Schedule schedule, const cuda::EmulatedDeviceConfig& config = {})
        : emulator(schedule, 7),
          device(make_emulated_device(emulator, config)),
          executor(model.model.config, model.model.weights, *device,
                   {.block_size = 5, .num_blocks = 60, .num_state_rows = 4, .max_log_tokens = kMaxLog},
                   model.reference.profile()) {}

    simt::Emulator emulator;
    std::unique_ptr<cuda::Device> device;
    cuda::CudaExecutor executor;
};

WindowCounts run_emulated(const SceneModel& model, Schedule schedule, uint64_t seed) {
    EmulatedWindows cuda(model, schedule);
    const WindowCounts counts = run_windows(model, cuda.executor, 5, 15, 8, kMaxLog, seed);
    EXPECT_TRUE(cuda.emulator.findings().empty()) << cuda.emulator.findings().front().text;
    return counts;
}

TEST(CudaWindows, TokensLogitsAndStatesAreThoseOfPlainDecoding) {
    uint64_t number = 0;
    for (const Architecture family : kFamilies) {
        const Schedule schedule = cuda::schedules()[number++ % cuda::schedules().size()];
        const SceneModel model(reference::draw_small_config(family, number), number);
        const WindowCounts counts = run_emulated(model, schedule, number);
        if (::testing::Test::HasFailure()) FAIL() << reference::architecture_name(family);
        EXPECT_GT(counts.accepted_drafts, 10);
        EXPECT_GT(counts.rolled_back, 5);
        EXPECT_GT(counts.unwritten_rows, 0);
        if (!model.has_state) continue;
        EXPECT_GT(counts.replayed, 0);
        EXPECT_GT(counts.moves, 0);
    }
}

TEST(CudaWindows, OnTensorCoresTheyAreToo) {
    const SceneModel model(reference::draw_small_config(Architecture::kGraniteHybrid, 4), 4, Profile::kTensorSm90);
    EXPECT_GT(run_emulated(model, Schedule::kRandom, 4).accepted_drafts, 0);
}

}  // namespace
}  // namespace verbatim::tests
