// Plans written by hand: whatever is cached, chunked, batched or threaded, the bits are those of the uncached
// reference.
#include "kernels/cpu/cpu_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reference/reference_executor.h"
#include "tests/kernels/poisoned_model.h"
#include "tests/reference/executor_scene.h"
#include "tests/reference/families.h"
#include "tests/support/sanitized.h"

namespace verbatim::cpu {
namespace {

using reference::Architecture;
using tests::Family;
using tests::iota;
using tests::kAllFamilies;
using tests::PoisonedModel;
using tests::Scene;
using tests::SceneModel;

constexpr int32_t kBlockSizes[] = {1, 3, 16, 20, 64};

CpuExecutorConfig config_of(int32_t block_size, int32_t num_threads = 1) {
    return {.pools = {.block_size = block_size, .num_blocks = 1600 / block_size, .num_state_rows = 8},
            .num_threads = num_threads};
}

SceneModel model_of(const Family& family, uint64_t seed = 1) { return SceneModel(family.draw(seed), seed); }

std::string where(const Family& family, int32_t block_size, int64_t number) {
    return fmt::format("{}, blocks of {}, {}", family.name(), block_size, number);
}

TEST(CpuExecutor, AnyChunkingGivesTheUncachedBits) {
    const std::vector<std::vector<int32_t>> chunkings{{75}, {1, 74}, {64, 11}, {63, 2, 10}, {17, 17, 17, 17, 7}};
    for (const Family& family : kAllFamilies) {
        const SceneModel model = model_of(family);
        const auto tokens = model.tokens(75, 3);
        for (size_t i = 0; i < chunkings.size(); ++i) {
            const int32_t block_size = kBlockSizes[i];
            CpuExecutor executor(model.model.config, model.model.weights, config_of(block_size));
            Scene scene(model, executor, block_size);
            scene.next().start({.slot = 0, .tokens = tokens});
            int64_t done = 0;
            for (const int32_t chunk : chunkings[i]) {
                if (done > 0) scene.next();
                scene.compute({.slot = 0,
                               .num_computed_tokens = done,
                               .num_new_tokens = chunk,
                               .num_sampled_positions = done + chunk == 75 ? 1 : 0,
                               .state_src = done > 0 ? 2 : -1,
                               .state_dst = 2,
                               .new_blocks = done > 0 ? std::vector<int32_t>{} : iota(3, scene.blocks_for(75))});
                scene.step();
                done += chunk;
            }
            scene.expect_uncached(0, tokens, where(family, block_size, static_cast<int64_t>(i)));
            scene.expect_head(tokens, iota(3, scene.blocks_for(75)), 2,
                              where(family, block_size, static_cast<int64_t>(i)));
        }
    }
}

// Slot 0 computes `tokens` with a snapshot at `length`; slot 1 attaches there and computes them with another end,
// twice over.
void attach_twice(const SceneModel& model, int32_t block_size, int32_t length, const std::string& name) {
    CpuExecutor executor(model.model.config, model.model.weights, config_of(block_size));
    Scene scene(model, executor, block_size);
    const auto tokens = model.tokens(90, 5);
    const auto num_blocks = static_cast<int32_t>(scene.blocks_for(90));
    const std::vector<TokenId> head(tokens.begin(), tokens.begin() + length);
    scene.next().start({.slot = 0, .tokens = tokens});
    scene.compute({.slot = 0,
                   .num_new_tokens = 90,
                   .num_sampled_positions = 1,
                   .state_dst = 0,
                   .new_blocks = iota(0, num_blocks),
                   .state_writes = {{length, StateIndex{1}}}});
    scene.step();
    scene.expect_uncached(0, tokens, name);
    const auto head_blocks = iota(0, scene.blocks_for(length));
    scene.expect_head(head, head_blocks, 1, name);
    const int32_t full = length / block_size;
    for (int32_t slot = 1; slot <= 2; ++slot) {
        auto other = head;
        for (const TokenId token : model.tokens(70 + slot, 100 + slot)) other.push_back(token);
        const auto end = static_cast<int32_t>(other.size());
        const int32_t first_new = num_blocks * (1 + 2 * slot);
        scene.next().start({.slot = slot, .tokens = other, .num_computed_tokens = length, .blocks = iota(0, full)});
        scene.copy(full, first_new, length % block_size);
        scene.compute({.slot = slot,
                       .num_computed_tokens = length,
                       .num_new_tokens = end - length,
                       .num_sampled_positions = 1,
                       .state_src = 1,
                       .state_dst = 2 + slot,
                       .new_blocks = iota(first_new, scene.blocks_for(end) - full)});
        scene.step();
        scene.expect_uncached(slot, other, name);
    }
    scene.expect_head(head, head_blocks, 1, name + ": the head changed");
}

TEST(CpuExecutor, AttachedSuffixGivesTheUncachedBitsAndKeepsTheHead) {
    for (const Family& family : kAllFamilies) {
        const SceneModel model = model_of(family, 2);
        for (const int32_t block_size : {1, 3, 16, 20}) {
            if (tests::kSanitized && block_size % 10 != 0) continue;
            for (const int32_t length : {1, 31, 60, 64, 89}) {
                attach_twice(model, block_size, length, where(family, block_size, length));
            }
        }
    }
}

TEST(CpuExecutor, DecodedTokensGiveTheBitsOfPrefill) {
    for (const Family& family : kAllFamilies) {
        const SceneModel model = model_of(family, 3);
        CpuExecutor executor(model.model.config, model.model.weights, config_of(16, 2));
        Scene scene(model, executor, 16);
        auto tokens = model.tokens(60, 7);
        scene.next().start({.slot = 0, .tokens = tokens});
        scene.compute(
            {.slot = 0, .num_new_tokens = 60, .num_sampled_positions = 1, .state_dst = 0, .new_blocks = iota(0, 5)});
        scene.step();
        for (int32_t i = 0; i < 10; ++i) {
            ASSERT_EQ(scene.result.drawn.size(), 1u);
            ASSERT_EQ(scene.result.drawn.at(0).fault_layer, -1);
            tokens.push_back(token_of(scene.result, 0));
            scene.next().compute({.slot = 0,
                                  .num_computed_tokens = 60 + i,
                                  .num_new_tokens = 1,
                                  .num_sampled_positions = 1,
                                  .state_src = 0,
                                  .state_dst = 0,
                                  .appended = {tokens.back()}});
            scene.step();
            scene.expect_uncached(0, tokens, where(family, 16, i));
        }
        scene.expect_head(tokens, iota(0, 5), 0, where(family, 16, 70));
    }
}

// Every tile and run boundary +- 2: a prefill up to it, then decoding over it.
TEST(CpuExecutor, LengthsAroundTilesAndRunsGiveTheUncachedBits) {
    const SceneModel model = model_of(Family{Architecture::kGraniteHybrid}, 4);
    for (const int32_t boundary : {64, 128, 512, 576}) {
        for (const int32_t block_size : {16, 20}) {
            CpuExecutor executor(model.model.config, model.model.weights, config_of(block_size, 2));
            Scene scene(model, executor, block_size);
            const auto tokens = model.tokens(boundary + 3, 9);
            scene.next().start({.slot = 0, .tokens = {tokens.begin(), tokens.begin() + boundary - 2}});
            scene.compute({.slot = 0,
                           .num_new_tokens = boundary - 2,
                           .num_sampled_positions = 1,
                           .state_dst = 0,
                           .new_blocks = iota(0, scene.blocks_for(boundary + 3))});
            scene.step();
            for (int32_t length = boundary - 2; length <= boundary + 2; ++length) {
                scene.expect_uncached(0, std::span(tokens).first(length),
                                      where(Family{Architecture::kGraniteHybrid}, block_size, length));
                scene.next().compute({.slot = 0,
                                      .num_computed_tokens = length,
                                      .num_new_tokens = 1,
                                      .num_sampled_positions = 1,
                                      .state_src = 0,
                                      .state_dst = 0,
                                      .appended = {tokens[length]}});
                scene.step();
            }
        }
    }
}

TEST(CpuExecutor, BatchCompositionAndThreadsChangeNoBit) {
    for (const Family& family : kAllFamilies) {
        const SceneModel model = model_of(family, 5);
        for (int32_t num_threads = 1; num_threads <= 4; ++num_threads) {
            CpuExecutor executor(model.model.config, model.model.weights, config_of(16, num_threads));
            Scene scene(model, executor, 16);
            const std::vector<std::vector<TokenId>> all{model.tokens(40, 1), model.tokens(1, 2), model.tokens(130, 3)};
            scene.next();
            for (int32_t slot = 0; slot < 3; ++slot) {
                const auto length = static_cast<int32_t>(all[slot].size());
                scene.start({.slot = slot, .tokens = all[slot]});
                scene.compute({.slot = slot,
                               .num_new_tokens = length,
                               .num_sampled_positions = 1,
                               .state_dst = slot,
                               .new_blocks = iota(20 * slot, scene.blocks_for(length))});
            }
            scene.step();
            for (int32_t slot = 0; slot < 3; ++slot) {
                scene.expect_uncached(slot, all[slot], where(family, num_threads, slot));
                scene.expect_head(all[slot], iota(20 * slot, scene.blocks_for(static_cast<int64_t>(all[slot].size()))),
                                  slot, where(family, num_threads, slot));
            }
        }
    }
}

TEST(CpuExecutor, ANanEndsOnlyItsSequence) {
    const PoisonedModel model;
    CpuExecutor executor(model.scene.model.config, model.scene.model.weights, config_of(16));
    Scene scene(model.scene, executor, 16);
    const auto sound = model.sound_tokens(20, 1);
    auto poisoned = model.sound_tokens(20, 2);
    poisoned[7] = 0;
    scene.next().start({.slot = 0, .tokens = poisoned}).start({.slot = 1, .tokens = sound});
    scene.compute({.slot = 0, .num_new_tokens = 20, .num_sampled_positions = 1, .state_dst = 0, .new_blocks = {0, 1}});
    scene.compute({.slot = 1, .num_new_tokens = 20, .num_sampled_positions = 1, .state_dst = 1, .new_blocks = {2, 3}});
    scene.step();
    ASSERT_EQ(scene.result.drawn.size(), 2u);
    EXPECT_EQ(scene.result.drawn.at(0).fault_layer, model.fault_layer());
    EXPECT_EQ(scene.result.drawn.at(1).fault_layer, -1);
    scene.expect_uncached(1, sound, "beside a NaN");
}

// For every division into calls, and on every executor.
TEST(CpuExecutor, FaultLayerIsAFunctionOfTheTokens) {
    const PoisonedModel model;
    auto poisoned = model.sound_tokens(30, 2);
    poisoned[12] = 0;
    for (const int32_t chunk : {30, 11, 4, 1}) {
        CpuExecutor cpu(model.scene.model.config, model.scene.model.weights, config_of(16));
        reference::ReferenceExecutor beside(model.scene.model.config, model.scene.model.weights);
        for (reference::NumericExecutor* executor :
             {static_cast<reference::NumericExecutor*>(&cpu), static_cast<reference::NumericExecutor*>(&beside)}) {
            Scene scene(model.scene, *executor, 16);
            scene.next().start({.slot = 0, .tokens = poisoned});
            for (int32_t done = 0; done < 30; done += chunk) {
                if (done > 0) scene.next();
                const int32_t count = std::min(chunk, 30 - done);
                scene.compute({.slot = 0,
                               .num_computed_tokens = done,
                               .num_new_tokens = count,
                               .num_sampled_positions = done + count == 30 ? 1 : 0,
                               .state_src = done > 0 ? 0 : -1,
                               .state_dst = 0,
                               .new_blocks = done > 0 ? iota(0, 0) : iota(0, 2)});
                scene.step();
            }
            EXPECT_EQ(scene.result.drawn.at(0).fault_layer, model.fault_layer()) << chunk;
        }
    }
}

// A block comes back with the KV of another sequence in it, NaN among it, also at the odd half of the last pair.
void reuse_blocks(const PoisonedModel& model, Isa isa, int32_t block_size, int32_t length) {
    CpuExecutorConfig config = config_of(block_size);
    config.isa = isa;
    CpuExecutor executor(model.scene.model.config, model.scene.model.weights, config);
    Scene scene(model.scene, executor, block_size);
    const auto blocks = iota(0, scene.blocks_for(32));
    scene.next().start({.slot = 0, .tokens = std::vector<TokenId>(32, 0)});
    scene.compute({.slot = 0, .num_new_tokens = 32, .num_sampled_positions = 1, .state_dst = 0, .new_blocks = blocks});
    scene.step();
    const auto sound = model.sound_tokens(length, 3);
    scene.next().end(0).start({.slot = 0, .tokens = sound});
    scene.compute(
        {.slot = 0, .num_new_tokens = length, .num_sampled_positions = 1, .state_dst = 0, .new_blocks = blocks});
    scene.step();
    EXPECT_EQ(scene.result.drawn.at(0).fault_layer, -1);
    const auto name = fmt::format("{}, blocks of {}, length {}", isa_name(isa), block_size, length);
    scene.expect_uncached(0, sound, name);
}

TEST(CpuExecutor, StaleSlotsOfAReusedBlockAreNotRead) {
    const PoisonedModel model;
    for (const Isa isa : supported_isas()) {
        for (const int32_t block_size : {3, 16}) {
            for (int32_t length = 1; length <= 18; ++length) reuse_blocks(model, isa, block_size, length);
        }
    }
}

TEST(CpuExecutor, InstructionSetsGiveTheUncachedBits) {
    for (const Isa isa : supported_isas()) {
        for (const Family& family : kAllFamilies) {
            const SceneModel model = model_of(family, 9);
            CpuExecutorConfig config = config_of(16, 2);
            config.isa = isa;
            CpuExecutor executor(model.model.config, model.model.weights, config);
            EXPECT_EQ(executor.isa(), isa);
            Scene scene(model, executor, 16);
            const auto tokens = model.tokens(140, 1);
            scene.next().start({.slot = 0, .tokens = tokens});
            scene.compute({.slot = 0,
                           .num_new_tokens = 140,
                           .num_sampled_positions = 1,
                           .state_dst = 0,
                           .new_blocks = iota(0, 9)});
            scene.step();
            scene.expect_uncached(0, tokens, std::string(isa_name(isa)));
            scene.expect_head(tokens, iota(0, 9), 0, std::string(isa_name(isa)));
        }
    }
}

// Two requests of the same tokens in one step, one of them ordinary: a prompt, then a token.
void compute_beside_an_ordinary_one(const SceneModel& model, CpuExecutor& executor, bool joined,
                                    const std::string& name) {
    Scene scene(model, executor, 16);
    const auto tokens = model.tokens(41, 3);
    const std::vector<TokenId> prompt(tokens.begin(), tokens.end() - 1);
    scene.next().start({.slot = 0, .tokens = prompt}).start({.slot = 1, .tokens = prompt});
    for (const int64_t done : {0, 40}) {
        if (done > 0) scene.next();
        for (const int32_t slot : {0, 1}) {
            scene.compute({.slot = slot,
                           .num_computed_tokens = done,
                           .num_new_tokens = done == 0 ? 40 : 1,
                           .num_sampled_positions = 1,
                           .state_src = done > 0 ? slot : -1,
                           .state_dst = slot,
                           .appended = done > 0 ? std::vector{tokens.back()} : std::vector<TokenId>{},
                           .new_blocks = done > 0 ? std::vector<int32_t>{} : iota(3 * slot, 3),
                           .arithmetic = slot == 0 ? Arithmetic::kDeterministic : Arithmetic::kOrdinary});
        }
        scene.step();
        const std::vector<TokenId> computed(tokens.begin(), tokens.begin() + done + (done == 0 ? 40 : 1));
        scene.expect_uncached(0, computed, name);
        if (joined) scene.expect_uncached(1, computed, name);
    }
    scene.expect_head(tokens, iota(0, 3), 0, name);
    // What rounding to bf16 hides elsewhere shows in a state.
    const bool same = scene.head(41, iota(3, 3), 1) == scene.head(41, iota(0, 3), 0);
    EXPECT_EQ(same, joined || !model.has_state) << name;
}

TEST(CpuExecutor, OrdinarySequencesInAnotherArithmeticChangeNoOtherBits) {
    if (best_isa() == Isa::kPortable) GTEST_SKIP() << "the portable loops are exact in every profile";
    for (const Family& family : kAllFamilies) {
        const SceneModel model = model_of(family);
        for (const int64_t max_joined_rows : {0, 80}) {
            CpuExecutorConfig config = config_of(16);
            config.ordinary_profile = Profile::kFast;
            config.max_joined_rows = max_joined_rows;
            CpuExecutor executor(model.model.config, model.model.weights, config);
            EXPECT_EQ(executor.numerics_id(), "exact/1");
            EXPECT_EQ(executor.ordinary_numerics_id(), "fast/1");
            compute_beside_an_ordinary_one(model, executor, max_joined_rows > 0, where(family, 16, max_joined_rows));
        }
    }
}

TEST(CpuExecutor, SamplingDependsOnTheAbsolutePositionAndThePrompt) {
    const SceneModel model = model_of(Family{Architecture::kGraniteHybrid}, 7);
    const SamplingParams sampling{
        .temperature = 2.0F, .repetition_penalty = 1.5F, .presence_penalty = 0.5F, .seed = 99};
    const auto tokens = model.tokens(40, 1);
    std::vector<TokenId> drawn;
    for (const bool attached : {false, true}) {
        CpuExecutor executor(model.model.config, model.model.weights, config_of(16));
        Scene scene(model, executor, 16);
        if (attached) {
            scene.next().start({.slot = 1, .tokens = tokens});
            scene.compute({.slot = 1, .num_new_tokens = 32, .state_dst = 0, .new_blocks = {0, 1}});
            scene.step();
        }
        const int32_t length = attached ? 32 : 0;
        scene.next();
        if (attached) scene.end(1);
        scene.start({.slot = 0,
                     .tokens = tokens,
                     .num_computed_tokens = length,
                     .blocks = attached ? iota(0, 2) : iota(0, 0),
                     .sampling = sampling,
                     .num_prompt_tokens = 20});
        scene.compute({.slot = 0,
                       .num_computed_tokens = length,
                       .num_new_tokens = 40 - length,
                       .num_sampled_positions = 1,
                       .state_src = attached ? 0 : -1,
                       .state_dst = 1,
                       .new_blocks = attached ? iota(2, 1) : iota(0, 3)});
        scene.step();
        drawn.push_back(token_of(scene.result, 0));
    }
    EXPECT_EQ(drawn[0], drawn[1]);
}

TEST(CpuExecutorDeath, PlanThatBreaksARuleStopsTheProgram) {
    const SceneModel model = model_of(Family{Architecture::kGraniteHybrid});
    CpuExecutor executor(model.model.config, model.model.weights, config_of(16));
    Scene scene(model, executor, 16);
    scene.next().start({.slot = 0, .tokens = model.tokens(20, 1)});
    scene.compute({.slot = 0, .num_new_tokens = 20, .state_dst = 0, .new_blocks = {0}});
    EXPECT_DEATH(scene.step(), "slot 0 computes up to position 20, but its 1 blocks hold 16");
}

}  // namespace
}  // namespace verbatim::cpu
