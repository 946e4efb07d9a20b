// The CPU executor in lockstep with the reference, and with itself with other threads.
#include <gtest/gtest.h>

#include "kernels/cpu/cpu_executor.h"
#include "reference/lockstep_executor.h"
#include "reference/reference_executor.h"
#include "tests/reference/executor_scene.h"
#include "tests/reference/families.h"

namespace verbatim::cpu {
namespace {

using reference::Architecture;
using reference::LockstepExecutor;
using tests::Family;
using tests::iota;
using tests::kAllFamilies;
using tests::SceneModel;

// A prefill in two chunks with a snapshot that cuts the reference's walk, then a decode.
void run(const SceneModel& model, LockstepExecutor& lockstep) {
    tests::PlanBuilder plans(model.model.config.vocab_size);
    const auto tokens = model.tokens(300, 1);
    const auto blocks = model.has_kv ? iota(0, 20) : iota(0, 0);
    const int32_t row = model.has_state ? 0 : -1;
    StepResult result;
    tests::SequenceSpec first{.slot = 0, .num_new_tokens = 290, .state_dst = row, .new_blocks = blocks};
    if (model.has_state) first.state_writes = {{100, StateIndex{1}}};
    plans.next().start({.slot = 0, .tokens = tokens}).compute(first);
    ASSERT_TRUE(lockstep.execute(plans.plan(), result));
    plans.next().compute({.slot = 0,
                          .num_computed_tokens = 290,
                          .num_new_tokens = 10,
                          .num_sampled_positions = 1,
                          .state_src = row,
                          .state_dst = row});
    ASSERT_TRUE(lockstep.execute(plans.plan(), result));
    plans.next().compute({.slot = 0,
                          .num_computed_tokens = 300,
                          .num_new_tokens = 1,
                          .num_sampled_positions = 1,
                          .state_src = row,
                          .state_dst = row,
                          .appended = {token_of(result, 0)}});
    ASSERT_TRUE(lockstep.execute(plans.plan(), result));
    const std::vector<BlockRun> table{{BlockId{0}, model.has_kv ? 20 : 0}};
    lockstep.head_digest({.writer = SequenceSlot{0}, .length = 301, .blocks = table, .state = StateIndex{row}});
    EXPECT_TRUE(lockstep.identical()) << to_string(*lockstep.first_difference());
    EXPECT_EQ(lockstep.counts().compared_logits, 2 * model.model.config.vocab_size);
    EXPECT_EQ(lockstep.counts().compared_states, 1);
    EXPECT_EQ(lockstep.counts().unwatched_steps, 0);
    EXPECT_GT(lockstep.counts().compared_operations, 301 * 4);
}

constexpr CpuExecutorConfig kOneThread{.pools = {.block_size = 16, .num_blocks = 32, .num_state_rows = 4},
                                       .num_threads = 1};
constexpr CpuExecutorConfig kThreeThreads{.pools = {.block_size = 16, .num_blocks = 32, .num_state_rows = 4},
                                          .num_threads = 3};

TEST(Lockstep, CpuAgreesWithTheReferenceInEveryOperation) {
    for (const Family& family : kAllFamilies) {
        const SceneModel model(family.draw(21), 21);
        CpuExecutor cpu(model.model.config, model.model.weights, kThreeThreads);
        reference::ReferenceExecutor beside(model.model.config, model.model.weights, 2);
        LockstepExecutor lockstep(cpu, beside);
        run(model, lockstep);
    }
}

TEST(Lockstep, InTensorSm90CpuAgreesWithTheReferenceInEveryOperation) {
    CpuExecutorConfig config = kThreeThreads;
    config.profile = Profile::kTensorSm90;
    for (const Family& family : kAllFamilies) {
        const SceneModel model(family.draw(24), 24);
        CpuExecutor cpu(model.model.config, model.model.weights, config);
        reference::ReferenceExecutor beside(model.model.config, model.model.weights, 2, Profile::kTensorSm90);
        LockstepExecutor lockstep(cpu, beside);
        EXPECT_EQ(lockstep.numerics_id(), "tensor.sm90/1");
        run(model, lockstep);
    }
}

TEST(Lockstep, TheReferenceAgreesWithCpuInEveryOperation) {
    const SceneModel model(reference::draw_small_config(Architecture::kGraniteHybrid, 22), 22);
    reference::ReferenceExecutor primary(model.model.config, model.model.weights);
    CpuExecutor cpu(model.model.config, model.model.weights, kOneThread);
    LockstepExecutor lockstep(primary, cpu);
    run(model, lockstep);
}

TEST(Lockstep, ThreadCountsAgreeInEveryOperation) {
    const SceneModel model(reference::draw_small_config(Architecture::kFalconH1, 23), 23);
    CpuExecutor one(model.model.config, model.model.weights, kOneThread);
    CpuExecutor three(model.model.config, model.model.weights, kThreeThreads);
    LockstepExecutor lockstep(one, three);
    run(model, lockstep);
}

}  // namespace
}  // namespace verbatim::cpu
