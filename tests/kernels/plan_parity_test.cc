// Plan parity: the same requests with forced tokens give one chain of plan digests on every executor: decisions depend
// only on tokens' counts, heads and pools.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "kernels/cpu/cpu_executor.h"
#include "kernels/cuda/cuda_executor.h"
#include "kernels/cuda/emulated_device.h"
#include "reference/model/random_model.h"
#include "reference/reference_executor.h"
#include "tests/support/engine_scene.h"

namespace verbatim::tests {
namespace {

constexpr SceneOptions kTight{.block_size = 4, .num_blocks = 16, .num_state_rows = 6, .step_tokens = 24};

struct RunOutput {
    Digest plans;
    EngineStats stats;
    std::vector<Digest> heads;
};

// Turns that chunk, share steps, attach, fork, are preempted and aborted.
RunOutput run_on(Executor& executor, int32_t vocab_size) {
    EngineRig rig(kTight, executor, vocab_size);
    DigestRecorder digests;
    const auto text = [&](int64_t first, int64_t count) {
        std::vector<TokenId> tokens;
        for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>((first * 31 + i * 7) % vocab_size));
        return tokens;
    };
    const auto forced = [&](ChatRequest request, int64_t first, int64_t count) {
        request.forced_output = rig.store.store(text(first, count));
        return request;
    };
    for (int64_t i = 0; i < 3; ++i) rig.submit(forced(rig.history(std::to_string(i), text(i, 10 + 4 * i)), i, 12));
    rig.run();
    CHECK(rig.engine.fork(rig.key("1"), "fork").has_value());
    rig.submit(forced(rig.suffix("1", text(5, 6)), 6, 9));
    rig.submit(forced(rig.suffix("fork", text(7, 3)), 8, 9));
    const RequestId left = rig.submit(forced(rig.history("3", text(9, 30)), 9, 9));
    rig.step();
    rig.abort(left);
    rig.run();
    rig.expect_home();
    RunOutput told;
    for (const StepPlan& plan : rig.log.plans) digests.on_plan(plan);
    told.plans = digests.plan_digest();
    told.stats = rig.engine.stats();
    for (const Head* head : rig.engine.cache().heads()) told.heads.push_back(head->digest);
    return told;
}

TEST(PlanParity, EveryExecutorGetsTheSamePlans) {
    const reference::Model model =
        reference::make_random_model(reference::draw_small_config(reference::Architecture::kGraniteHybrid, 5), 5);
    const int32_t vocab_size = model.config.vocab_size;

    cpu::CpuExecutor on_cpu(model.config, model.weights,
                            {.pools = {.block_size = 4, .num_blocks = 16, .num_state_rows = 6}, .num_threads = 2});
    const RunOutput cpu = run_on(on_cpu, vocab_size);
    EXPECT_GT(cpu.stats.preemptions, 0);
    EXPECT_GT(cpu.stats.evictions, 0);
    EXPECT_GT(cpu.stats.tail_copies, 0);
    EXPECT_EQ(cpu.stats.aborts, 1);

    reference::ReferenceExecutor on_reference(model.config, model.weights);
    const RunOutput reference = run_on(on_reference, vocab_size);
    EXPECT_EQ(reference.plans, cpu.plans);
    EXPECT_EQ(reference.stats, cpu.stats);

    simt::Emulator emulator;
    const auto device = cuda::make_emulated_device(emulator);
    cuda::CudaExecutor on_cuda(model.config, model.weights, *device, {4, 16, 6});
    const RunOutput cuda = run_on(on_cuda, vocab_size);
    EXPECT_EQ(cuda.plans, cpu.plans);
    EXPECT_EQ(cuda.stats, cpu.stats);
    EXPECT_EQ(cuda.heads, cpu.heads);

    HashExecutor hash({.vocab_size = vocab_size, .pools = {.block_size = 4, .num_blocks = 16, .num_state_rows = 6}});
    const RunOutput hashed = run_on(hash, vocab_size);
    EXPECT_EQ(hashed.plans, cpu.plans);
    EXPECT_EQ(hashed.stats, cpu.stats);
    EXPECT_TRUE(hash.violations().empty());
}

}  // namespace
}  // namespace verbatim::tests
