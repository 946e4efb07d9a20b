// tests/kernels/cuda/head_case.h: heads that a device sums in place, compared with the host's digest of the same bytes.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/cuda_executor.h"
#include "tests/reference/executor_scene.h"

namespace verbatim::cuda {

// In a family with states and KV, with an odd width of attention heads.
inline void expect_heads_summed_in_place(Device& device, int32_t block_size) {
    reference::ModelConfig config = reference::draw_small_config(reference::Architecture::kNemotronH, 8);
    for (reference::LayerConfig& layer : config.layers) {
        if (layer.attention) layer.attention->head_dim = 7;
    }
    const tests::SceneModel model(config, 8);
    CudaExecutor executor(model.model.config, model.model.weights, device,
                          {.pools = {.block_size = block_size, .num_blocks = 400 / block_size, .num_state_rows = 8}});
    tests::PlanBuilder plans(model.model.config.vocab_size);
    StepResult result;
    std::vector<int64_t> waits;
    for (const int32_t length : {1, 23, 61}) {
        const int32_t num_blocks = (length + block_size - 1) / block_size;
        plans.next().start({.slot = 0, .tokens = model.tokens(length, 1)});
        plans.compute({.slot = 0, .num_new_tokens = length, .state_dst = 3, .new_blocks = tests::iota(2, num_blocks)});
        ASSERT_TRUE(executor.execute(plans.plan(), result));
        const BlockRun run{BlockId{2}, num_blocks};
        const HeadImage head{.writer = SequenceSlot{0}, .length = length, .blocks = {&run, 1}, .state = StateIndex{3}};
        const DeviceCounts before = device.counts();
        const auto got = executor.head_digest(head);
        waits.push_back(device.counts().waits - before.waits);
        EXPECT_GT(device.counts().launches, before.launches);
        EXPECT_EQ(device.counts().allocations, before.allocations) << "graphs end with an allocation";
        reference::HeadDigester wanted(executor.tensors(), length);
        ASSERT_TRUE(executor.read_head(
            head, [&](const reference::HeadPiece& piece) { wanted.add(piece.tensor, piece.bytes); }));
        ASSERT_TRUE(got);
        EXPECT_EQ(got->hex(), wanted.digest().hex()) << length;
        const BlockRun short_run{BlockId{2}, num_blocks - 1};
        EXPECT_FALSE(executor.head_digest({.length = length, .blocks = {&short_run, 1}, .state = StateIndex{3}}));
        plans.next().end(0);
        ASSERT_TRUE(executor.execute(plans.plan(), result));
    }
    EXPECT_EQ(waits.front(), waits.back()) << "something is fetched block by block";
}

}  // namespace verbatim::cuda
