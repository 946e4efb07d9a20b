// tests/kernels/cuda/decoding.h: sequences that decode together on a device, each step compared with the uncached
// reference.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/cuda_executor.h"
#include "tests/reference/executor_scene.h"

namespace verbatim::cuda {

inline constexpr int32_t kBlocksEach = 40;  // of 16 tokens

// Sequences that are prefilled up to the given lengths, and then decode together, in the profile of the model's
// reference.
class Decoding {
public:
    // Borrows both.
    Decoding(const tests::SceneModel& model, Device& device, const std::vector<int64_t>& lengths)
        : device_(device),
          executor_(model.model.config, model.model.weights, device,
                    {.pools = {.block_size = 16,
                               .num_blocks = kBlocksEach * static_cast<int32_t>(lengths.size()),
                               .num_state_rows = static_cast<int32_t>(lengths.size())}},
                    model.reference.profile()),
          scene_(model, executor_, 16) {
        scene_.next();
        for (const int64_t length : lengths) {
            const auto slot = static_cast<int32_t>(tokens_.size());
            tokens_.push_back(model.tokens(length, 100 + static_cast<uint64_t>(slot)));
            scene_.start({.slot = slot, .tokens = tokens_.back()});
            scene_.compute({.slot = slot,
                            .num_new_tokens = static_cast<int32_t>(length),
                            .num_sampled_positions = 1,
                            .state_dst = slot,
                            .new_blocks = tests::iota(slot * kBlocksEach, kBlocksEach)});
        }
        scene_.step();
        num_live_ = lengths.size();
    }

    // One more token for each of the first sequences, compared with the uncached logits. Returns the device's counts of
    // the step.
    DeviceCounts step(size_t num_sequences, bool compares = true) {
        scene_.next();
        for (size_t i = num_sequences; i < num_live_; ++i) scene_.end(static_cast<int32_t>(i));
        num_live_ = num_sequences;
        for (size_t i = 0; i < num_sequences; ++i) {
            const auto slot = static_cast<int32_t>(i);
            tokens_[i].push_back(token_of(scene_.result, i));
            scene_.compute({.slot = slot,
                            .num_computed_tokens = static_cast<int64_t>(tokens_[i].size()) - 1,
                            .num_new_tokens = 1,
                            .num_sampled_positions = 1,
                            .state_src = slot,
                            .state_dst = slot,
                            .appended = {tokens_[i].back()}});
        }
        const DeviceCounts before = device_.counts();
        scene_.step();
        const DeviceCounts after = device_.counts();
        for (size_t i = 0; compares && i < num_sequences; ++i) {
            scene_.expect_uncached(static_cast<int32_t>(i), tokens_[i], fmt::format("length {}", tokens_[i].size()));
        }
        return {.allocations = after.allocations - before.allocations,
                .launches = after.launches - before.launches,
                .graph_launches = after.graph_launches - before.graph_launches,
                .uploads = after.uploads - before.uploads,
                .waits = after.waits - before.waits};
    }

private:
    Device& device_;
    CudaExecutor executor_;
    tests::Scene scene_;
    std::vector<std::vector<TokenId>> tokens_;
    size_t num_live_ = 0;
};

// The step was one graph launch, one transfer to the device and one wait for its tokens.
inline void expect_graph(const DeviceCounts& step) {
    EXPECT_EQ(step.graph_launches, 1);
    EXPECT_EQ(step.launches, 0);
    EXPECT_EQ(step.allocations, 0);
    EXPECT_EQ(step.uploads, 1);
    EXPECT_EQ(step.waits, 1);  // for its tokens
}

}  // namespace verbatim::cuda
