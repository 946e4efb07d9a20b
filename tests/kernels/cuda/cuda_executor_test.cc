// The CUDA kernels in the emulator: the uncached bits for every family, chunking, attach and order of threads, and
// nothing that the emulator finds wrong.
#include "kernels/cuda/cuda_executor.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_executor.h"
#include "kernels/cuda/emulated_device.h"
#include "reference/model/presets.h"
#include "reference/reference_executor.h"
#include "tests/kernels/cuda/head_case.h"
#include "tests/kernels/cuda/schedules.h"
#include "tests/kernels/poisoned_model.h"
#include "tests/reference/executor_scene.h"
#include "tests/reference/families.h"
#include "tests/reference/lockstep_scene.h"

namespace verbatim::cuda {
namespace {

using reference::Architecture;
using reference::Profile;
using simt::Emulator;
using simt::Schedule;
using tests::iota;
using tests::PoisonedModel;
using tests::Scene;
using tests::SceneModel;

struct Emulated {
    // In the profile of the model's reference.
    explicit Emulated(const SceneModel& model, int32_t block_size = 16, Schedule schedule = Schedule::kForward)
        : emulator(schedule, 7),
          device(make_emulated_device(emulator)),
          executor(model.model.config, model.model.weights, *device,
                   {.pools = {.block_size = block_size, .num_blocks = 800 / block_size, .num_state_rows = 8}},
                   model.reference.profile()) {}
    void expect_no_findings() const {
        EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
        EXPECT_GT(emulator.num_launches(), 0);
    }

    Emulator emulator;
    std::unique_ptr<Device> device;
    CudaExecutor executor;
};

// `length` tokens with two snapshots, then three more, in lockstep with another executor.
void run_lockstep(const SceneModel& model, reference::NumericExecutor& beside, int32_t length) {
    Emulated cuda(model);
    reference::LockstepExecutor lockstep(cuda.executor, beside);
    tests::expect_identical(
        model, lockstep,
        {.num_prefilled = length, .num_more = 3, .state_writes = {{5, StateIndex{1}}, {18, StateIndex{2}}}});
    EXPECT_GT(lockstep.counts().compared_operations, (length + 3) * 4);
    cuda.expect_no_findings();
}

TEST(CudaExecutor, AgreesWithTheReferenceInEveryOperation) {
    for (const tests::Family& family : tests::kAllFamilies) {
        SCOPED_TRACE(family.name());
        const SceneModel model(family.draw(31), 31);
        reference::ReferenceExecutor beside(model.model.config, model.model.weights);
        run_lockstep(model, beside, 21);
    }
}

// Rows enough for the large blocks, then few.
TEST(CudaExecutor, InTensorSm90AgreesWithReferenceAndCpuInEveryOperation) {
    for (const tests::Family& family : tests::kAllFamilies) {
        SCOPED_TRACE(family.name());
        const SceneModel model(family.draw(35), 35, Profile::kTensorSm90);
        EXPECT_EQ(Emulated(model).executor.numerics_id(), "tensor.sm90/1");
        reference::ReferenceExecutor reference(model.model.config, model.model.weights, 1, Profile::kTensorSm90);
        run_lockstep(model, reference, 40);
        cpu::CpuExecutor cpu(
            model.model.config, model.model.weights,
            {.pools = {.block_size = 16, .num_blocks = 8, .num_state_rows = 8}, .profile = Profile::kTensorSm90});
        run_lockstep(model, cpu, 26);
    }
}

// Nothing is promised but to be near: 2^-8 where a rounding to bf16 falls on the other side, and a few percent after
// all layers.
TEST(CudaExecutor, FastLogitsAreCloseToTheExactOnes) {
    for (const tests::Family& family : tests::kAllFamilies) {
        const SceneModel model(family.draw(37), 37);
        simt::Emulator emulator(Schedule::kRandom, 7);
        const auto device = make_emulated_device(emulator);
        CudaExecutor executor(model.model.config, model.model.weights, *device,
                              {.pools = {.block_size = 16, .num_blocks = 8, .num_state_rows = 2}}, Profile::kFast);
        EXPECT_EQ(executor.numerics_id(), "fast/1");
        Scene scene(model, executor, 16);
        const auto tokens = model.tokens(41, 3);
        scene.next().start({.slot = 0, .tokens = tokens});
        scene.compute({.slot = 0, .num_new_tokens = 40, .state_dst = 0, .new_blocks = iota(0, 3)}).step();
        scene.next().compute({.slot = 0,
                              .num_computed_tokens = 40,
                              .num_new_tokens = 1,
                              .num_sampled_positions = 1,
                              .state_src = 0,
                              .state_dst = 0});
        scene.step();
        const auto got = executor.logits(SequenceSlot{0}, 0);
        const auto want = tests::uncached(model.reference, tokens).logits;
        double difference = 0.0;
        double length = 0.0;
        for (size_t i = 0; i < want.size(); ++i) {
            difference += std::pow(double{got[i]} - double{want[i]}, 2);
            length += std::pow(double{want[i]}, 2);
        }
        EXPECT_LT(std::sqrt(difference / length), 0.02) << family.name();
        EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
    }
}

// A head of `length` tokens, and a suffix that attaches to it: tail copied, state read from the head's row.
void attach(const SceneModel& model, int32_t block_size, int32_t length, Schedule schedule) {
    Emulated cuda(model, block_size, schedule);
    Scene scene(model, cuda.executor, block_size);
    const auto tokens = model.tokens(40, 5);
    const auto num_blocks = static_cast<int32_t>(scene.blocks_for(40));
    const std::vector<TokenId> head(tokens.begin(), tokens.begin() + length);
    scene.next().start({.slot = 0, .tokens = tokens});
    scene.compute({.slot = 0,
                   .num_new_tokens = 40,
                   .num_sampled_positions = 1,
                   .state_dst = 0,
                   .new_blocks = iota(0, num_blocks),
                   .state_writes = {{length, StateIndex{1}}}});
    scene.step();
    scene.expect_uncached(0, tokens, "head");
    auto other = head;
    for (const TokenId token : model.tokens(9, 100)) other.push_back(token);
    const int32_t full = length / block_size;
    const auto end = static_cast<int32_t>(other.size());
    scene.next().start({.slot = 1, .tokens = other, .num_computed_tokens = length, .blocks = iota(0, full)});
    scene.copy(full, num_blocks, length % block_size);
    scene.compute({.slot = 1,
                   .num_computed_tokens = length,
                   .num_new_tokens = end - length,
                   .num_sampled_positions = 1,
                   .state_src = 1,
                   .state_dst = 3,
                   .new_blocks = iota(num_blocks, scene.blocks_for(end) - full)});
    scene.step();
    scene.expect_uncached(1, other, "suffix");
    scene.expect_head(head, iota(0, scene.blocks_for(length)), 1, "the head changed");
    cuda.expect_no_findings();
}

TEST(CudaExecutor, AnAttachedSuffixGivesTheUncachedBitsInAnyOrderOfThreads) {
    const SceneModel model(reference::draw_small_config(Architecture::kGraniteHybrid, 32), 32);
    attach(model, 16, 21, Schedule::kForward);
    attach(model, 16, 32, Schedule::kReverse);
    attach(model, 5, 33, Schedule::kRandom);
    attach(model, 8, 1, Schedule::kOneWarpAhead);
    const SceneModel tensor(reference::draw_small_config(Architecture::kGraniteHybrid, 36), 36, Profile::kTensorSm90);
    attach(tensor, 16, 21, Schedule::kRandom);
}

TEST(CudaExecutor, LengthsAroundTilesAndRunsGiveTheUncachedBits) {
    const SceneModel model(reference::draw_small_config(Architecture::kLlama, 33), 33);
    const auto tokens = model.tokens(515, 2);
    Emulated cuda(model);
    Scene scene(model, cuda.executor, 16);
    scene.next().start({.slot = 0, .tokens = tokens});
    int64_t done = 0;
    for (const int32_t end : {62, 66, 510, 513, 515}) {
        if (done > 0) scene.next();
        scene.compute({.slot = 0,
                       .num_computed_tokens = done,
                       .num_new_tokens = end - static_cast<int32_t>(done),
                       .num_sampled_positions = end == 515 ? 1 : 0,
                       .state_src = -1,
                       .state_dst = -1,
                       .new_blocks = done > 0 ? std::vector<int32_t>{} : iota(0, scene.blocks_for(515))});
        scene.step();
        done = end;
    }
    scene.expect_uncached(0, tokens, "after two runs");
    cuda.expect_no_findings();
}

// In the prefill, and in decode steps that are recorded and launched again; in the state where there is one, else in
// the logits.
TEST(CudaExecutor, ANanEndsOnlyItsSequence) {
    for (const Architecture family : {Architecture::kGraniteHybrid, Architecture::kLlama}) {
        const PoisonedModel model(family);
        Emulated cuda(model.scene);
        Scene scene(model.scene, cuda.executor, 16);
        std::vector<std::vector<TokenId>> tokens = {model.sound_tokens(20, 2), model.sound_tokens(20, 1)};
        scene.next();
        for (int32_t slot = 0; slot < 2; ++slot) {
            scene.start({.slot = slot, .tokens = tokens[slot]});
            scene.compute({.slot = slot,
                           .num_new_tokens = 20,
                           .num_sampled_positions = 1,
                           .state_dst = slot,
                           .new_blocks = iota(2 * slot, 2)});
        }
        scene.step();
        for (int32_t step = 0; step < 5; ++step) {
            EXPECT_EQ(scene.result.drawn.at(0).fault_layer, step < 4 ? -1 : model.fault_layer()) << step;
            EXPECT_EQ(scene.result.drawn.at(1).fault_layer, -1) << step;
            scene.expect_uncached(1, tokens[1], "beside a NaN");
            scene.next();
            for (int32_t slot = 0; slot < 2; ++slot) {
                tokens[slot].push_back(slot == 0 && step == 3 ? 0 : tokens[slot][step]);
                scene.compute({.slot = slot,
                               .num_computed_tokens = std::ssize(tokens[slot]) - 1,
                               .num_new_tokens = 1,
                               .num_sampled_positions = 1,
                               .state_src = slot,
                               .state_dst = slot,
                               .appended = {tokens[slot].back()}});
            }
            scene.step();
        }
        EXPECT_GT(cuda.device->counts().graph_launches, 2);
        cuda.expect_no_findings();
    }
}

// A block comes back with the KV of another sequence in it, NaN among it, also at the odd half of the last pair.
TEST(CudaExecutor, StaleSlotsOfAReusedBlockAreNotRead) {
    for (const Profile profile : {Profile::kExact, Profile::kTensorSm90}) {
        const PoisonedModel model(Architecture::kGraniteHybrid, profile);
        for (int32_t length = 1; length <= 18; length += tests::kSanitized ? 4 : 1) {
            Emulated cuda(model.scene, 3);
            Scene scene(model.scene, cuda.executor, 3);
            scene.next().start({.slot = 0, .tokens = std::vector<TokenId>(32, 0)});
            scene.compute({.slot = 0,
                           .num_new_tokens = 32,
                           .num_sampled_positions = 1,
                           .state_dst = 0,
                           .new_blocks = iota(0, 11)});
            scene.step();
            const auto sound = model.sound_tokens(length, 3);
            scene.next().end(0).start({.slot = 0, .tokens = sound});
            scene.compute({.slot = 0,
                           .num_new_tokens = length,
                           .num_sampled_positions = 1,
                           .state_dst = 0,
                           .new_blocks = iota(0, 11)});
            scene.step();
            EXPECT_EQ(scene.result.drawn.at(0).fault_layer, -1);
            scene.expect_uncached(0, sound, fmt::format("length {}", length));
        }
    }
}

// The first step of its kind takes the memory that it needs, a later one none; the host waits for the tokens alone.
TEST(CudaExecutor, ARepeatedPrefillAllocatesNothingAndWaitsOnce) {
    const SceneModel model(reference::draw_small_config(Architecture::kGraniteHybrid, 32), 32);
    Emulated cuda(model);
    Scene scene(model, cuda.executor, 16);
    for (int step = 0; step < 3; ++step) {
        scene.next();
        if (step > 0) scene.end(0);
        const DeviceCounts before = cuda.device->counts();
        scene.start({.slot = 0, .tokens = model.tokens(30, static_cast<uint64_t>(step))});
        scene.compute(
            {.slot = 0, .num_new_tokens = 30, .num_sampled_positions = 1, .state_dst = 0, .new_blocks = iota(0, 2)});
        scene.step();
        const DeviceCounts after = cuda.device->counts();
        EXPECT_EQ(after.allocations > before.allocations, step == 0) << step;
        EXPECT_EQ(after.uploads - before.uploads, 1);
        EXPECT_EQ(after.waits - before.waits, 1);
        EXPECT_EQ(after.graph_launches, 0);
    }
}

// Entries are listed, gathered, multiplied twice or three times, activated and combined; the norm and the branch are
// the MLP's where there is one.
int64_t launches_of_experts(const reference::MoeConfig& moe, bool has_mlp) {
    int64_t num = moe.kind == reference::MlpKind::kGatedSilu ? 9 : 8;
    if (moe.d_latent > 0) num += has_mlp ? 4 : 3;  // the normed rows are rounded again for the MLP
    if (!has_mlp) return num + 2;
    return num + (moe.shared_gate ? 3 : 1);
}

// Of a step that draws one token: an operation is a launch, but for rotary (q and k), attention (2) and a
// draw (5). Rounding is one where an input is multiplied first, or another mixer has come between, or a pair of what is
// left for the matmul would lie in two blocks.
int64_t launches_of_a_step(const reference::ModelConfig& config) {
    const auto unless_one = [](std::initializer_list<double> multipliers) {
        return std::ssize(multipliers) - std::ranges::count(multipliers, 1.0);
    };
    int64_t num = 1 + 3 + 5 + (unless_one({config.logits_multiplier, config.logits_divisor}) > 0 ? 1 : 0);
    for (const reference::LayerConfig& layer : config.layers) {
        num += layer.has_mixer() ? 1 : 0;
        if (const auto& mamba = layer.mamba) {
            const auto& by = mamba->multipliers;
            const int64_t group_width = mamba->d_inner() / mamba->n_norm_groups;
            num += 6 + unless_one({mamba->in_multiplier, by.z, by.x, by.b, by.c, by.dt});
            num += mamba->n_norm_groups > 1 && group_width % 2 == 1 ? 1 : 0;
        }
        if (const auto& delta = layer.delta) {
            num += 11;
            num += delta->n_value_heads > 1 && delta->value_dim % 2 == 1 ? 1 : 0;
        }
        if (const auto& attention = layer.attention) {
            num += (attention->qk_norm ? 2 : 0) + (attention->output_gate ? 1 : 0);
            num += 8 + unless_one({attention->key_multiplier});
            num += layer.mamba || attention->in_multiplier != 1.0 ? 1 : 0;
            num += attention->rope.kind != reference::RopeKind::kNone ? 2 : 0;
            num += attention->n_heads > 1 && attention->head_dim % 2 == 1 ? 1 : 0;
        }
        if (layer.mlp) num += layer.mlp->kind == reference::MlpKind::kGatedSilu ? 6 : 5;
        if (layer.moe) num += launches_of_experts(*layer.moe, layer.mlp.has_value());
    }
    return num;
}
TEST(CudaExecutor, AStepLaunchesExactlyTheWalksKernels) {
    for (const tests::Family& family : tests::kAllFamilies) {
        for (uint64_t seed = 1; seed <= 3; ++seed) {
            const SceneModel model(family.draw(seed), seed);
            Emulated cuda(model);
            Scene scene(model, cuda.executor, 16);
            scene.next();
            scene.start({.slot = 0, .tokens = model.tokens(5, 1)});
            scene.compute(
                {.slot = 0, .num_new_tokens = 5, .num_sampled_positions = 1, .state_dst = 0, .new_blocks = iota(0, 1)});
            scene.step();
            EXPECT_EQ(cuda.device->counts().launches, launches_of_a_step(model.model.config))
                << family.name() << ", seed " << seed;
        }
    }
}

// Whichever allocation finds no room, of weights and pools or in the middle of a run: an error that says so, and
// nothing else.
TEST(CudaExecutor, WithoutRoomOnTheDeviceTheStepFails) {
    const SceneModel model(reference::draw_small_config(Architecture::kGraniteHybrid, 8), 8);
    const auto run = [&](int64_t fail_at, DeviceCounts& counts) -> Status {
        simt::Emulator emulator;
        const auto device = make_emulated_device(emulator, {.fail_at_allocation = fail_at});
        CudaExecutor executor(model.model.config, model.model.weights, *device,
                              {.pools = {.num_blocks = 8, .num_state_rows = 1}});
        tests::PlanBuilder plans(model.model.config.vocab_size);
        StepResult result;
        plans.next().start({.slot = 0, .tokens = model.tokens(39, 1)});
        plans.compute({.slot = 0, .num_new_tokens = 38, .state_dst = 0, .new_blocks = iota(0, 3)});
        Status done = executor.execute(plans.plan(), result);
        for (int64_t position = 38; done && position < 40; ++position) {
            plans.next().compute({.slot = 0,
                                  .num_computed_tokens = position,
                                  .num_new_tokens = 1,
                                  .num_sampled_positions = 1,
                                  .state_src = 0,
                                  .state_dst = 0,
                                  .appended = result.tokens});
            done = executor.execute(plans.plan(), result);
        }
        EXPECT_EQ(executor.tables().is_live(SequenceSlot{0}), done.has_value());
        counts = device->counts();
        return done;
    };
    DeviceCounts all;
    ASSERT_TRUE(run(0, all));
    ASSERT_GT(all.allocations, 30);
    for (int64_t k = 1; k <= all.allocations; ++k) {
        DeviceCounts counts;
        const Status failed = run(k, counts);
        ASSERT_FALSE(failed) << k;
        EXPECT_EQ(failed.error().kind, ErrorKind::kMachine);
        EXPECT_TRUE(failed.error().message.starts_with(fmt::format("emulated GPU: allocation {}, of ", k)));
    }
}

TEST(CudaExecutor, AHeadIsSummedInPlace) {
    for (const Schedule schedule : schedules()) {
        for (const int32_t block_size : {5, 16}) {
            Emulator emulator(schedule, 11);
            const auto device = make_emulated_device(emulator);
            expect_heads_summed_in_place(*device, block_size);
            EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
        }
    }
}

TEST(CudaExecutor, AModelBeyondTheKernelsLimitsIsRefusedByName) {
    const reference::ModelConfig fits = reference::draw_small_config(Architecture::kFalconH1, 34);
    const CudaLimits limits;
    PoolSizes pools{.block_size = 16, .num_blocks = 32, .num_state_rows = 4};
    EXPECT_EQ(unsupported(fits, pools, limits), std::vector<std::string>{});
    reference::ModelConfig beyond = fits;
    beyond.layers[0].attention->head_dim = 258;
    beyond.layers[1].mamba->d_state = 257;
    beyond.layers[1].mamba->d_conv = 5;
    EXPECT_EQ(unsupported(beyond, pools, limits),
              (std::vector<std::string>{"layer 0: head_dim = 258, the CUDA kernels take up to 256",
                                        "layer 1: d_state = 257, the CUDA kernels take up to 256",
                                        "layer 1: d_conv = 5, the CUDA kernels take up to 4"}));
    beyond = fits;
    beyond.layers[1].mamba->n_heads = 257;
    beyond.layers[1].mamba->head_dim = 64;
    beyond.layers[1].mamba->d_state = 256;
    EXPECT_EQ(unsupported(beyond, pools, limits),
              std::vector<std::string>{"layer 1: d_inner · d_state = 4210688, the CUDA kernels take up to 4194240"});
    beyond = fits;
    beyond.layers[1].mamba->n_heads = 65536;
    beyond.layers[1].mamba->head_dim = 1;
    beyond.layers[1].mamba->d_state = 32;
    EXPECT_EQ(unsupported(beyond, pools, limits),
              std::vector<std::string>{"layer 1: n_heads = 65536, the CUDA kernels take up to 65535"});
    beyond = reference::draw_small_config(Architecture::kQwen35, 34);
    const auto delta = std::ranges::find_if(beyond.layers, [](const auto& layer) { return layer.delta.has_value(); });
    ASSERT_NE(delta, beyond.layers.end());
    delta->delta->key_dim = 129;
    EXPECT_EQ(unsupported(beyond, pools, limits),
              std::vector<std::string>{fmt::format("layer {}: key_dim = 129, the CUDA kernels take up to 128",
                                                   delta - beyond.layers.begin())});
    beyond = reference::draw_small_moe_config(Architecture::kQwen35Moe, 34);
    beyond.layers[0].moe->n_experts = 513;
    EXPECT_EQ(unsupported(beyond, pools, limits),
              std::vector<std::string>{"layer 0: n_experts = 513, the CUDA kernels take up to 512"});
    beyond = fits;
    beyond.layers.resize(1);
    beyond.layers[0].attention->n_kv_heads = 4;
    pools.num_blocks = 1 << 25;
    EXPECT_EQ(
        unsupported(beyond, pools, limits),
        std::vector<std::string>{"layer 0: num_blocks · block_size · n_kv_heads = 2147483648, the CUDA kernels take "
                                 "up to 2147483647"});
}

}  // namespace
}  // namespace verbatim::cuda
