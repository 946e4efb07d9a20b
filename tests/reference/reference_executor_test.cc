#include "reference/reference_executor.h"

#include <gtest/gtest.h>

#include "tests/reference/executor_scene.h"

namespace verbatim::reference {
namespace {

using tests::iota;
using tests::Scene;
using tests::SceneModel;

constexpr Architecture kFamilies[] = {Architecture::kGraniteHybrid, Architecture::kLlama, Architecture::kMamba2,
                                      Architecture::kQwen35, Architecture::kQwen35Moe};

SceneModel model_of(Architecture family) { return SceneModel(draw_small_config(family, 11), 11); }

TEST(ReferenceExecutor, AttachedSequenceIsComputedFromItsFirstToken) {
    for (const Architecture family : kFamilies) {
        const SceneModel model = model_of(family);
        ReferenceExecutor executor(model.model.config, model.model.weights);
        Scene scene(model, executor, 16);
        const auto tokens = model.tokens(50, 1);
        // Those blocks and that row were never written.
        scene.next().start({.slot = 0, .tokens = tokens, .num_computed_tokens = 40, .blocks = {7, 5}});
        scene.copy(6, 9, 8);
        scene.compute({.slot = 0,
                       .num_computed_tokens = 40,
                       .num_new_tokens = 10,
                       .num_sampled_positions = 1,
                       .state_src = 3,
                       .state_dst = 2,
                       .new_blocks = {9, 10}});
        scene.step();
        scene.expect_uncached(0, tokens, "attached");
        EXPECT_EQ(executor.num_recomputed_tokens(), 40);
    }
}

TEST(ReferenceExecutor, ChunksSnapshotsAndDecodingChangeNothing) {
    for (const Architecture family : kFamilies) {
        const SceneModel model = model_of(family);
        ReferenceExecutor executor(model.model.config, model.model.weights);
        Scene scene(model, executor, 16);
        auto tokens = model.tokens(300, 2);
        scene.next().start({.slot = 0, .tokens = tokens});
        scene.compute({.slot = 0,
                       .num_new_tokens = 290,
                       .state_dst = 0,
                       .new_blocks = iota(0, 20),
                       .state_writes = {{1, StateIndex{1}}, {77, StateIndex{2}}, {290, StateIndex{3}}}});
        scene.step();
        scene.next().compute({.slot = 0,
                              .num_computed_tokens = 290,
                              .num_new_tokens = 10,
                              .num_sampled_positions = 1,
                              .state_src = 0,
                              .state_dst = 0});
        scene.step();
        scene.expect_uncached(0, tokens, "prefill");
        tokens.push_back(token_of(scene.result, 0));
        scene.next().compute({.slot = 0,
                              .num_computed_tokens = 300,
                              .num_new_tokens = 1,
                              .num_sampled_positions = 1,
                              .state_src = 0,
                              .state_dst = 0,
                              .appended = {tokens.back()}});
        scene.step();
        scene.expect_uncached(0, tokens, "decode");
    }
}

// At its present length, and at those that state writes named: with the digests of uncached runs over just those
// tokens.
TEST(ReferenceExecutor, HoldsTheHeadsOfRunningSequences) {
    for (const Architecture family : kFamilies) {
        const SceneModel model = model_of(family);
        ReferenceExecutor executor(model.model.config, model.model.weights);
        Scene scene(model, executor, 16);
        const auto tokens = model.tokens(60, 3);
        scene.next().start({.slot = 0, .tokens = tokens});
        scene.compute({.slot = 0,
                       .num_new_tokens = 50,
                       .state_dst = 0,
                       .new_blocks = iota(0, 4),
                       .state_writes = {{20, StateIndex{1}}, {50, StateIndex{2}}}});
        scene.step();
        scene.next().compute(
            {.slot = 0, .num_computed_tokens = 50, .num_new_tokens = 10, .state_src = 0, .state_dst = 0});
        scene.step();
        for (const int64_t length : {20, 50, 60}) {
            const auto digest = executor.head_digest({.writer = SequenceSlot{0}, .length = length, .blocks = {}});
            ASSERT_TRUE(digest.has_value()) << length;
            EXPECT_EQ(digest->hex(), tests::uncached(model.reference, std::span(tokens).first(length)).digest.hex());
        }
        EXPECT_EQ(executor.head_digest({.writer = SequenceSlot{0}, .length = 61, .blocks = {}}), std::nullopt);
        EXPECT_EQ(executor.head_digest({.writer = SequenceSlot{0}, .length = 30, .blocks = {}}).has_value(),
                  !model.has_state);
        EXPECT_EQ(executor.head_digest({.writer = kNoSlot, .length = 60, .blocks = {}}), std::nullopt);
        scene.next().end(0);
        scene.step();
        EXPECT_EQ(executor.head_digest({.writer = SequenceSlot{0}, .length = 60, .blocks = {}}), std::nullopt);
    }
}

TEST(ReferenceExecutor, AReusedSlotStartsFromZeros) {
    const SceneModel model = model_of(Architecture::kGraniteHybrid);
    ReferenceExecutor executor(model.model.config, model.model.weights);
    Scene scene(model, executor, 16);
    for (uint64_t seed = 1; seed <= 2; ++seed) {
        const auto tokens = model.tokens(20, seed);
        scene.next();
        if (seed == 2) scene.end(0);
        scene.start({.slot = 0, .tokens = tokens});
        scene.compute(
            {.slot = 0, .num_new_tokens = 20, .num_sampled_positions = 1, .state_dst = 0, .new_blocks = iota(0, 2)});
        scene.step();
        scene.expect_uncached(0, tokens, "reused slot");
    }
}

TEST(ReferenceExecutor, ThreadsChangeNothing) {
    for (const Architecture family : kFamilies) {
        const SceneModel model = model_of(family);
        for (int32_t num_threads = 1; num_threads <= 3; ++num_threads) {
            ReferenceExecutor executor(model.model.config, model.model.weights, num_threads);
            Scene scene(model, executor, 16);
            scene.next();
            for (int32_t slot = 0; slot < 5; ++slot) {
                scene.start({.slot = slot, .tokens = model.tokens(30 + slot, slot)});
                scene.compute({.slot = slot,
                               .num_new_tokens = 30 + slot,
                               .num_sampled_positions = 1,
                               .state_dst = slot,
                               .new_blocks = iota(3 * slot, 3)});
            }
            scene.step();
            for (int32_t slot = 0; slot < 5; ++slot)
                scene.expect_uncached(slot, model.tokens(30 + slot, slot), "threads");
        }
    }
}

}  // namespace
}  // namespace verbatim::reference
