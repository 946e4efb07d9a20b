// Decode steps as graphs: launches recorded once and run again with the parameters that they had then. The bits are the
// uncached ones at every length, so no parameter depends on one; and a step neither allocates nor waits but for its
// results.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kernels/cuda/emulated_device.h"
#include "tests/kernels/cuda/decoding.h"
#include "tests/reference/families.h"
#include "tests/support/sanitized.h"

namespace verbatim::cuda {
namespace {

using reference::Architecture;
using simt::Schedule;
using tests::SceneModel;

class EmulatedDecoding {
public:
    EmulatedDecoding(const SceneModel& model, Schedule schedule, const std::vector<int64_t>& lengths)
        : emulator_(schedule, 11), device_(make_emulated_device(emulator_)), decoding_(model, *device_, lengths) {}
    DeviceCounts step(size_t num_sequences, bool compares = true) {
        const DeviceCounts asked = decoding_.step(num_sequences, compares);
        EXPECT_TRUE(emulator_.findings().empty()) << emulator_.findings().front().text;
        return asked;
    }

private:
    simt::Emulator emulator_;
    std::unique_ptr<Device> device_;
    Decoding decoding_;
};

void expect_uncached_decoding(reference::Profile profile) {
    constexpr Schedule kSchedules[] = {Schedule::kForward, Schedule::kReverse, Schedule::kRandom,
                                       Schedule::kOneWarpAhead};
    size_t i = profile == reference::Profile::kExact ? 0 : 1;
    for (const tests::Family& family : tests::kAllFamilies) {
        SCOPED_TRACE(family.name());
        const SceneModel model(family.draw(31), 31, profile);
        EmulatedDecoding decoding(model, kSchedules[i++ % 4], {62, 3, 17});
        EXPECT_EQ(decoding.step(3).graph_launches, 0);  // takes the memory that it needs
        for (int n = 0; n < 4; ++n) expect_graph(decoding.step(3));
    }
}
TEST(CudaGraph, EveryFamilyDecodesToTheUncachedBitsInAnyOrderOfThreads) {
    expect_uncached_decoding(reference::Profile::kExact);
}
TEST(CudaGraph, EveryFamilyDecodesToTheUncachedBitsOnTensorCores) {
    expect_uncached_decoding(reference::Profile::kTensorSm90);
}

// Five sequences run as six, four as four; a graph is good for later steps too, until the device's memory moves.
TEST(CudaGraph, PaddingSequencesWriteNothing) {
    const SceneModel model(reference::draw_small_config(Architecture::kGraniteHybrid, 8), 8);
    EmulatedDecoding decoding(model, Schedule::kRandom, {9, 64, 30, 5, 1});
    EXPECT_EQ(decoding.step(5).graph_launches, 0);
    for (int n = 0; n < 3; ++n) expect_graph(decoding.step(5));
    EXPECT_EQ(decoding.step(4).graph_launches, 0);
    expect_graph(decoding.step(4));
    expect_graph(decoding.step(4));
}

TEST(CudaGraph, AReplayedStepDoesNotDependOnTheRecordedLength) {
    const SceneModel model(reference::draw_small_config(Architecture::kLlama, 33), 33);
    const int64_t first = tests::kSanitized ? 124 : 508;  // without a new run, a fifth of the accesses
    EmulatedDecoding decoding(model, Schedule::kOneWarpAhead, {first, 60});
    EXPECT_EQ(decoding.step(2, false).graph_launches, 0);
    for (int n = 0; n < 7; ++n) expect_graph(decoding.step(2, n % 3 == 0));  // a new tile at 64, a new run at 512
}

}  // namespace
}  // namespace verbatim::cuda
