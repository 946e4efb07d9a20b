// A server's engine with a folder of heads behind it, and its simulation with a tier: one chain of decisions.
#include <gtest/gtest.h>

#include "engine/timed_executor.h"
#include "server/heads/tier_link.h"
#include "simulator/eviction_policies.h"
#include "simulator/simulation.h"
#include "simulator/trace_driver.h"
#include "tests/server/heads/failing_folder.h"
#include "tests/support/hash_executor.h"
#include "tests/support/run_scribe.h"
#include "tests/support/scratch_folder.h"
#include "traces/generate.h"
#include "traces/read.h"

namespace verbatim::tests {
namespace {

using server::HeadTier;
using server::TierLink;
using traces::RowIndex;

constexpr PoolSizes kPools{.block_size = 4, .num_blocks = 70, .num_state_rows = 12};

EngineConfig pressed_engine() {
    EngineConfig config;
    config.cache.pools = kPools;
    config.cache.lookup = LookupMode::kPrefix;
    config.scheduler.step_tokens = 16;
    config.max_model_len = 240;
    return config;
}

// Lets requests wait for heads of the tier as a server does: in no time.
class TieredRun final : public AnswerRecorder {
public:
    using AnswerRecorder::AnswerRecorder;
    int64_t ready_ns(RowIndex row, ChatRequest& request, int64_t now_ns) override {
        const TokenSeq prompt = requests->prompt(row);
        if (const auto found = link->worth_restoring(request, prompt)) {
            link->wait_until_written();
            HeadTier::FilePtr head;
            link->load(
                *found, [&](HeadTier::FilePtr file) { head = std::move(file); }, nullptr);
            link->wait_until_written();
            if (head) link->import(*head, *found, request.conversation, prompt);
        }
        return now_ns;
    }
    void before_step(int64_t) override {
        link->wait_until_written();
        link->wait_for_heads();
        link->bring();
    }

    TierLink* link = nullptr;
    traces::RequestMaker* requests = nullptr;
};

struct Recording {
    RecordedRun run;
    Digest decisions;
    DriverReport driver;
    EngineStats stats;
    int64_t restored = 0;
};

Recording record(const traces::Trace& trace, HeadTier& tier) {
    Recording recording;
    recording.run.answers.resize(trace.rows.size());
    TokenStore store(1000);
    HashExecutor hash({.pools = kPools, .numerics_id = "cost/1"});
    ScribeClock clock(recording.run);
    TimedExecutor timed(hash, clock);
    TieredRun hooks(recording.run);
    LruEviction policy;
    Engine engine(pressed_engine(), timed, policy, store, hooks);
    TierLink link(engine, tier, RestorePolicy::kAlways);
    hooks.link = &link;
    auto requests = traces::RequestMaker::create(trace, store);
    EXPECT_TRUE(requests.has_value());
    hooks.requests = &*requests;
    TraceDriver driver({.step_ns = 0, .hooks = &hooks}, trace, *requests, engine, store);
    const auto report = driver.run();
    EXPECT_TRUE(report.has_value());
    recording.driver = *report;
    recording.decisions = hooks.digest.digest();
    recording.stats = engine.stats();
    recording.restored = tier.counts().restored;
    return recording;
}

SimulationResult simulate_again(const Recording& recording, const traces::Trace& trace, RestorePolicy policy) {
    SimulationConfig config;
    config.engine = pressed_engine();
    config.recorded = &recording.run;
    config.digest_plans = true;
    config.tiers.tiers = {{.name = "host", .bytes = 1'000'000, .bytes_per_us = int64_t{1} << 40}};
    config.tiers.eviction = TierEviction::kLru;
    config.tiers.restore = policy;
    config.tiers.cache = config.engine.cache;
    config.tiers.cache.kv_block_bytes = 10;
    config.tiers.cache.state_row_bytes = 10;
    Device device;
    device.memory_bytes_per_s = 1e15;
    device.bf16_flops = 1e18;
    const RooflineTimes kernels(device);
    StepCost cost({.matmuls = {{.n = 1000, .k = 1000}}}, device, kernels);
    LruEviction eviction;
    auto result = simulate(config, trace, cost, 1000, eviction);
    EXPECT_TRUE(result.has_value()) << result.error().message;
    return *std::move(result);
}

void expect_same_decisions(const traces::Trace& trace) {
    const ScratchFolder folder;
    auto tier = HeadTier::open({.folder = folder.path() / "tier",
                                .min_tokens = 1,
                                .model = "model",
                                .numerics = "cost/1",
                                .tensors = kCells,
                                .vocab_size = 1000});
    ASSERT_TRUE(tier.has_value()) << tier.error().message;
    const Recording recording = record(trace, **tier);
    ASSERT_GT(recording.restored, 10);
    ASSERT_GT(recording.stats.evictions, 0);
    const SimulationResult result = simulate_again(recording, trace, RestorePolicy::kAlways);
    EXPECT_EQ(result.restores.restores, recording.restored);
    EXPECT_EQ(result.stats, recording.stats);
    EXPECT_EQ(result.decisions, recording.decisions);
    // What was restored is only known of the simulated rows.
    for (size_t row = 0; row < trace.rows.size(); ++row) {
        EXPECT_EQ(result.driver.times[row].reused_tokens, recording.driver.times[row].reused_tokens) << row;
        EXPECT_EQ(result.driver.times[row].end_ns, recording.driver.times[row].end_ns) << row;
    }
}

TEST(SimulatedTier, TakesTheDecisionsOfAServerWithATier) {
    auto scenario = traces::read_trace(VERBATIM_SOURCE_DIR "/traces/scenario.csv");
    ASSERT_TRUE(scenario.has_value());
    expect_same_decisions(scenario->trace);
    for (uint64_t seed = 0; seed < 4; ++seed) {
        SCOPED_TRACE(seed);
        expect_same_decisions(traces::generate({.seed = seed,
                                                .conversations = 40,
                                                .rate = 2,
                                                .first_tokens = {40, 0.5},
                                                .turn_tokens = {12, 0.5},
                                                .output_tokens = {8, 0.5},
                                                .mean_think_seconds = 2,
                                                .system_prompt_tokens = 20}));
    }
}

}  // namespace
}  // namespace verbatim::tests
