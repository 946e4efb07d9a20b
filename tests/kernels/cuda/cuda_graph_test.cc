// Decode steps as graphs: launches recorded once and run again with the parameters that they had then. The bits are the uncached
// ones at every length, so no parameter depends on one; and a step neither allocates nor waits but for its results.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kernels/cuda/cuda_executor.h"
#include "kernels/cuda/emulated_device.h"
#include "tests/reference/executor_scene.h"

namespace verbatim::cuda {
namespace {

using reference::Architecture;
using simt::Schedule;
using testing::iota;
using testing::Scene;
using testing::SceneModel;

constexpr int32_t kBlocksEach = 40;  // of 16 tokens

// Some sequences that are computed up to a length each, and then decode together, in the profile of the model's reference.
class Decoding {
public:
    Decoding(const SceneModel& model, Schedule schedule, const std::vector<int64_t>& lengths)
        : emulator_(schedule, 11),
          device_(make_emulated_device(emulator_)),
          executor_(model.model.config, model.model.weights, *device_,
                    {.block_size = 16,
                     .num_blocks = kBlocksEach * static_cast<int32_t>(lengths.size()),
                     .num_state_rows = static_cast<int32_t>(lengths.size())},
                    model.reference.profile()),
          scene_(model, executor_, 16) {
        scene_.next();
        for (const int64_t length : lengths) {
            const auto slot = static_cast<int32_t>(tokens_.size());
            tokens_.push_back(model.tokens(length, 100 + static_cast<uint64_t>(slot)));
            scene_.start({.slot = slot, .tokens = tokens_.back()});
            scene_.compute({.slot = slot,
                            .num_new_tokens = static_cast<int32_t>(length),
                            .samples = true,
                            .state_dst = slot,
                            .new_blocks = iota(slot * kBlocksEach, kBlocksEach)});
        }
        scene_.step();
        num_live_ = lengths.size();
    }

    // One token more for each of the first sequences, with the uncached logits. What the step asked of the device.
    DeviceCounts step(size_t num_sequences, bool compares = true) {
        scene_.next();
        for (size_t i = num_sequences; i < num_live_; ++i) scene_.end(static_cast<int32_t>(i));
        num_live_ = num_sequences;
        for (size_t i = 0; i < num_sequences; ++i) {
            const auto slot = static_cast<int32_t>(i);
            tokens_[i].push_back(scene_.result.sampled.at(i).token);
            scene_.compute({.slot = slot,
                            .num_computed_tokens = static_cast<int64_t>(tokens_[i].size()) - 1,
                            .num_new_tokens = 1,
                            .samples = true,
                            .state_src = slot,
                            .state_dst = slot,
                            .appended = {tokens_[i].back()}});
        }
        const DeviceCounts before = device_->counts();
        scene_.step();
        const DeviceCounts after = device_->counts();
        for (size_t i = 0; compares && i < num_sequences; ++i) {
            scene_.expect_uncached(static_cast<int32_t>(i), tokens_[i], fmt::format("length {}", tokens_[i].size()));
        }
        EXPECT_TRUE(emulator_.findings().empty()) << emulator_.findings().front().text;
        return {.allocations = after.allocations - before.allocations,
                .launches = after.launches - before.launches,
                .graph_launches = after.graph_launches - before.graph_launches,
                .uploads = after.uploads - before.uploads,
                .waits = after.waits - before.waits};
    }

private:
    simt::Emulator emulator_;
    std::unique_ptr<Device> device_;
    CudaExecutor executor_;
    Scene scene_;
    std::vector<std::vector<TokenId>> tokens_;
    size_t num_live_ = 0;
};

void expect_graph(const DeviceCounts& step) {
    EXPECT_EQ(step.graph_launches, 1);
    EXPECT_EQ(step.launches, 0);
    EXPECT_EQ(step.allocations, 0);
    EXPECT_EQ(step.uploads, 1);
    EXPECT_EQ(step.waits, 1);  // for its tokens
}

TEST(CudaGraph, EveryFamilyDecodesToTheUncachedBitsInAnyOrderOfThreads) {
    constexpr Schedule kSchedules[] = {Schedule::kForward, Schedule::kReverse, Schedule::kRandom,
                                       Schedule::kOneWarpAhead};
    size_t i = 0;
    for (const Architecture family : {Architecture::kGraniteHybrid, Architecture::kLlama, Architecture::kBamba,
                                      Architecture::kNemotronH, Architecture::kFalconH1, Architecture::kMamba2}) {
        for (const auto profile : {reference::Profile::kExact, reference::Profile::kTensorSm90}) {
            SCOPED_TRACE(reference::architecture_name(family));
            const SceneModel model(reference::draw_small_config(family, 31), 31, profile);
            Decoding decoding(model, kSchedules[i++ % 4], {62, 3, 17});
            EXPECT_EQ(decoding.step(3).graph_launches, 0);  // takes the memory that it needs
            for (int n = 0; n < 4; ++n) expect_graph(decoding.step(3));
        }
    }
}

// Five sequences run as six, four as four; a graph is good for later steps too, until the device's memory moves.
TEST(CudaGraph, SequencesThatWriteNothingFillABatchUp) {
    const SceneModel model(reference::draw_small_config(Architecture::kGraniteHybrid, 8), 8);
    Decoding decoding(model, Schedule::kRandom, {9, 64, 30, 5, 1});
    EXPECT_EQ(decoding.step(5).graph_launches, 0);
    for (int n = 0; n < 3; ++n) expect_graph(decoding.step(5));
    EXPECT_EQ(decoding.step(4).graph_launches, 0);
    expect_graph(decoding.step(4));
    expect_graph(decoding.step(4));
}

TEST(CudaGraph, AReplayedStepKnowsNothingOfTheLengthThatItWasRecordedAt) {
    const SceneModel model(reference::draw_small_config(Architecture::kLlama, 33), 33);
    Decoding decoding(model, Schedule::kOneWarpAhead, {508, 60});
    EXPECT_EQ(decoding.step(2, false).graph_launches, 0);
    for (int n = 0; n < 7; ++n) expect_graph(decoding.step(2, n % 3 == 0));  // a new tile at 64, a new run at 512
}

}  // namespace
}  // namespace verbatim::cuda
