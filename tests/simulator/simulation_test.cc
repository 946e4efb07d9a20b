#include "simulator/simulation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>

#include "engine/base/prng.h"
#include "engine/clock.h"
#include "engine/timed_executor.h"
#include "simulator/eviction_policies.h"
#include "tests/support/hash_executor.h"
#include "tests/support/run_scribe.h"
#include "tests/support/trace_run.h"
#include "traces/builder.h"

namespace verbatim::tests {
namespace {

using traces::Event;
using traces::Row;
using traces::RowIndex;
using traces::TraceBuilder;

constexpr int64_t kMs = 1'000'000;

// Every step takes a millisecond, whatever it computes.
Device clockwork_device() {
    Device device;
    device.memory_bytes_per_s = 1e15;
    device.bf16_flops = 1e18;
    device.step_overhead_ns = kMs;
    return device;
}

EngineConfig roomy_engine() {
    EngineConfig config;
    config.cache.has_state = false;
    config.cache.pools.num_blocks = 1 << 20;
    config.scheduler.step_tokens = 1 << 20;
    config.max_model_len = 1 << 20;
    return config;
}

SimulationResult run(const SimulationConfig& config, const traces::Trace& trace,
                     EvictionChoice eviction = EvictionChoice::kLru, Device device = clockwork_device()) {
    const ModelShape model{.matmuls = {{.n = 1000, .k = 1000}}};
    const RooflineTimes kernels(device);
    StepCost cost(model, device, kernels);
    const auto policy = make_eviction_policy(eviction, {.kv_bytes_per_token = 4096, .flops_per_token = 1e9});
    auto result = simulate(config, trace, cost, 1000, *policy);
    EXPECT_TRUE(result.has_value()) << result.error().message;
    return std::move(*result);
}

// A request of a new conversation.
Row lone_request(TraceBuilder& builder, int64_t arrival_ns, int64_t answer_tokens) {
    const auto number = builder.trace().rows.size();
    Row row;
    row.conversation = builder.add_conversation(fmt::format("c{}", number), std::nullopt);
    row.arrival_ns = arrival_ns;
    row.max_tokens = answer_tokens;
    builder.add_piece({number + 1, 0, 2, true, false});
    return row;
}

SimulationConfig mooncake_config() {
    SimulationConfig config;
    config.engine.cache.pools.num_blocks = 60'000;
    config.engine.cache.pools.num_state_rows = 200;
    config.engine.scheduler.step_tokens = 8192;
    config.engine.max_model_len = 131072;
    return config;
}

// A device for which the trace is a load, and not too much of one.
Device busy_device() {
    Device device = clockwork_device();
    device.bf16_flops = 1e11;
    return device;
}

TEST(Simulation, TheSchedulerSeesALengthOnlyByTheTokenThatStops) {
    TraceBuilder builder;
    builder.add_row(lone_request(builder, 0, 7));
    builder.add_row(lone_request(builder, 0, 100));
    builder.add_row(lone_request(builder, 0, 0));
    const traces::Trace trace = builder.finish();
    SimulationConfig config;
    config.engine = roomy_engine();
    const SimulationResult result = run(config, trace);
    EXPECT_EQ(result.driver.served, 3);
    EXPECT_EQ(result.driver.times[0].output_tokens, 7);
    EXPECT_EQ(result.driver.times[1].output_tokens, 100);
    EXPECT_EQ(result.driver.times[2].output_tokens, 0);
    EXPECT_EQ(result.driver.times[0].end_ns / kMs, 7);
    // Were the lengths known, the first request would fit this cache; as it is, it may ask for 100 tokens.
    config.engine.cache.pools.num_blocks = 5;
    EXPECT_EQ(run(config, trace).driver.rejected, 2);
    config.max_tokens = 40;
    const SimulationResult cut = run(config, trace);
    EXPECT_EQ(cut.driver.rejected, 0);
    EXPECT_EQ(cut.driver.times[1].output_tokens, 40) << "clients get no more than they ask for";
}

// As a replay does: an answer that the context would cut is not served.
TEST(Simulation, RowsWhosePromptAndAnswerExceedTheContextAreRejected) {
    TraceBuilder builder;
    builder.add_row(lone_request(builder, 0, 98));  // with a prompt of 2 tokens: just fits
    builder.add_row(lone_request(builder, 0, 99));
    builder.add_row(lone_request(builder, 0, 1000));
    Row open_end = lone_request(builder, 0, -1);  // the engine's default, as long as the context allows
    builder.add_row(open_end);
    const traces::Trace trace = builder.finish();
    SimulationConfig config;
    config.engine = roomy_engine();
    config.engine.max_model_len = 100;
    const SimulationResult result = run(config, trace);
    EXPECT_EQ(result.driver.rejected, 2);
    EXPECT_EQ(result.driver.served, 2);
    EXPECT_EQ(result.driver.times[0].output_tokens, 98);
    EXPECT_EQ(result.driver.times[1].outcome, RowOutcome::kRejected);
    EXPECT_EQ(result.driver.times[2].outcome, RowOutcome::kRejected);
    EXPECT_EQ(result.driver.times[3].output_tokens, 98);
    config.max_tokens = 50;  // clients that ask for less get it
    EXPECT_EQ(run(config, trace).driver.rejected, 0);
}

TEST(Simulation, SameInputsSameBytesOut) {
    const traces::Trace trace = mooncake_trace(1000);
    const SimulationResult once = run(mooncake_config(), trace, EvictionChoice::kLru, busy_device());
    const SimulationResult again = run(mooncake_config(), trace, EvictionChoice::kLru, busy_device());
    EXPECT_EQ(once.digest, again.digest);
    EXPECT_EQ(once.driver.times, again.driver.times);
    Device slower = busy_device();
    slower.step_overhead_ns += 1;
    EXPECT_NE(run(mooncake_config(), trace, EvictionChoice::kLru, slower).digest, once.digest);
}

TEST(Simulation, NothingIsLostAndNothingComesBeforeItsCause) {
    const traces::Trace trace = mooncake_trace(2000);
    for (const EvictionChoice choice :
         {EvictionChoice::kLru, EvictionChoice::kLfu, EvictionChoice::kSize, EvictionChoice::kFlops}) {
        SCOPED_TRACE(static_cast<int>(choice));
        const SimulationResult result = run(mooncake_config(), trace, choice, busy_device());
        int64_t prompt_tokens = 0;
        int64_t output_tokens = 0;
        int64_t served = 0;
        for (size_t i = 0; i < trace.rows.size(); ++i) {
            const RowTimes& times = result.driver.times[i];
            const Row& row = trace.rows[i];
            if (!traces::is_request(row.event)) continue;
            ASSERT_EQ(times.outcome, RowOutcome::kServed) << i;
            ++served;
            prompt_tokens += times.prompt_tokens;
            output_tokens += times.output_tokens;
            EXPECT_EQ(times.output_tokens, row.max_tokens);
            EXPECT_LT(times.reused_tokens, times.prompt_tokens);
            ASSERT_LE(times.wanted_ns, times.due_ns);
            ASSERT_LT(times.due_ns, times.first_token_ns);
            ASSERT_LE(times.first_token_ns, times.end_ns);
            if (row.wait_for != traces::kNoRow) {
                ASSERT_GE(times.due_ns, result.driver.times[static_cast<size_t>(index(row.wait_for))].end_ns);
            }
        }
        EXPECT_GT(served, 1900);
        EXPECT_EQ(result.stats.reused_tokens + result.stats.computed_prompt_tokens, prompt_tokens);
        EXPECT_EQ(result.stats.generated_tokens, output_tokens);
        EXPECT_GT(result.stats.reused_tokens, 100'000);
        EXPECT_GT(result.stats.evictions, 0);
    }
}

TEST(Simulation, WithoutACacheNothingIsReused) {
    const traces::Trace trace = mooncake_trace(1000);
    SimulationConfig config = mooncake_config();
    EXPECT_GT(run(config, trace).stats.reused_tokens, 0);
    config.use_cache = false;
    EXPECT_EQ(run(config, trace).stats.reused_tokens, 0);
}

traces::Trace scenario() {
    auto read = traces::read_trace(VERBATIM_SOURCE_DIR "/traces/scenario.csv");
    EXPECT_TRUE(read.has_value());
    return std::move(read->trace);
}

TEST(Simulation, EveryRowHasOneOutcomeWhateverClientsDo) {
    // Rows three times as fast as they were: many come while the turn before them runs.
    auto hasty = traces::read_trace(VERBATIM_SOURCE_DIR "/traces/data/mooncake_conversation_trace.jsonl.gz",
                                    {.limit = 2000, .rate_scale = 5});
    ASSERT_TRUE(hasty.has_value());
    for (const Busy busy : {Busy::kWait, Busy::kRefuse, Busy::kUncached}) {
        for (const traces::Trace& trace : {scenario(), hasty->trace}) {
            SCOPED_TRACE(fmt::format("{} rows, busy {}", trace.rows.size(), static_cast<int>(busy)));
            SimulationConfig config = mooncake_config();
            config.engine.max_model_len = 30'000;  // some are too long
            config.busy = busy;
            const SimulationResult result = run(config, trace, EvictionChoice::kLru, busy_device());
            std::map<RowOutcome, int64_t> count;
            int64_t rejected_requests = 0;  // a fork of a rejected row is rejected, and no request
            for (size_t row = 0; row < trace.rows.size(); ++row) {
                const RowOutcome outcome = result.driver.times[row].outcome;
                ++count[outcome];
                const bool is_request = traces::is_request(trace.rows[row].event);
                rejected_requests += outcome == RowOutcome::kRejected && is_request ? 1 : 0;
            }
            EXPECT_EQ(count[RowOutcome::kNotOver], 0);
            EXPECT_EQ(count[RowOutcome::kFailed], 0);
            EXPECT_EQ(count[RowOutcome::kServed], result.driver.served);
            EXPECT_EQ(count[RowOutcome::kAborted], result.driver.aborted);
            EXPECT_EQ(count[RowOutcome::kRecorded], result.driver.recorded);
            EXPECT_EQ(count[RowOutcome::kRefused], result.driver.refused);
            EXPECT_EQ(rejected_requests, result.driver.rejected);
            EXPECT_EQ(count[RowOutcome::kBusy], busy == Busy::kRefuse ? result.driver.busy : 0);
            if (trace.rows.size() < 1000) continue;
            EXPECT_GT(result.driver.rejected, 50);
            EXPECT_EQ(result.driver.busy > 10, busy != Busy::kWait) << result.driver.busy;
            EXPECT_EQ(result.requests, 2000);
        }
    }
}

// --- queues

double exponential(Prng& prng, double mean) {
    const double u = (static_cast<double>(prng.next() >> 11) + 0.5) / 9007199254740992.0;
    return -mean * std::log(u);
}

struct Queue {
    traces::Trace trace;
    double mean_service_s = 0;
    double mean_square_service_s2 = 0;
};

// Requests by a Poisson process; answers whose lengths are exponential: a token takes a step of a millisecond.
Queue poisson_queue(double arrivals_per_s, double mean_tokens, int num_requests) {
    Queue queue;
    Prng prng(7);
    TraceBuilder builder;
    double now_s = 0;
    for (int i = 0; i < num_requests; ++i) {
        now_s += exponential(prng, 1 / arrivals_per_s);
        const auto tokens = std::max<int64_t>(1, std::llround(exponential(prng, mean_tokens)));
        builder.add_row(lone_request(builder, static_cast<int64_t>(now_s * 1e9), tokens));
        const double service_s = static_cast<double>(tokens) / 1000;
        queue.mean_service_s += service_s / num_requests;
        queue.mean_square_service_s2 += service_s * service_s / num_requests;
    }
    queue.trace = builder.finish();
    return queue;
}

struct Waits {
    double mean_wait_s = 0;    // beyond the time that serving it takes
    double mean_system_s = 0;  // due to end
};
Waits waits_of(const SimulationResult& result) {
    Waits waits;
    const auto n = static_cast<double>(result.driver.times.size());
    for (const RowTimes& times : result.driver.times) {
        const double system_s = static_cast<double>(times.end_ns - times.due_ns) / 1e9;
        waits.mean_system_s += system_s / n;
        waits.mean_wait_s += (system_s - static_cast<double>(times.output_tokens) / 1000) / n;
    }
    return waits;
}

// Pollaczek and Khinchine: a server of one request at a time makes them wait lambda E[S^2] / 2 (1 - rho).
TEST(Simulation, OneServerIsTheMM1QueueOfTheBooks) {
    const double lambda = 5;
    const Queue queue = poisson_queue(lambda, 120, 20'000);
    SimulationConfig config;
    config.engine = roomy_engine();
    config.engine.scheduler.max_num_sequences = 1;
    const SimulationResult result = run(config, queue.trace);
    const double rho = lambda * queue.mean_service_s;
    const double wanted = lambda * queue.mean_square_service_s2 / (2 * (1 - rho));
    EXPECT_NEAR(wanted, rho * queue.mean_service_s / (1 - rho), 0.05 * wanted) << "the lengths are exponential";
    EXPECT_NEAR(waits_of(result).mean_wait_s, wanted, 0.08 * wanted);
}

// Erlang's C: the chance to wait times the mean time until one of k servers is free.
TEST(Simulation, ParallelServersAreTheMMkQueueOfTheBooks) {
    constexpr int kServers = 4;
    const double lambda = 25;
    const Queue queue = poisson_queue(lambda, 120, 30'000);
    SimulationConfig config;
    config.engine = roomy_engine();
    config.engine.scheduler.max_num_sequences = kServers;
    const SimulationResult result = run(config, queue.trace);
    const double offered = lambda * queue.mean_service_s;
    double term = 1;
    double sum = 1;
    for (int i = 1; i < kServers; ++i) sum += term *= offered / i;
    const double all_busy = term * offered / kServers / (1 - offered / kServers);
    const double wanted = all_busy / (sum + all_busy) * queue.mean_service_s / (kServers - offered);
    EXPECT_NEAR(waits_of(result).mean_wait_s, wanted, 0.08 * wanted);
}

// Little: requests in the system, counted step by step, are arrivals per second times the time that they spend there.
TEST(Simulation, RequestsInTheSystemAreTheirRateTimesTheirTime) {
    const Queue queue = poisson_queue(20, 120, 5'000);
    SimulationConfig config;
    config.engine = roomy_engine();
    config.engine.scheduler.max_num_sequences = 3;
    config.record_steps = true;
    const SimulationResult result = run(config, queue.trace);
    double request_seconds = 0;
    for (const StepSample& step : result.steps) {
        request_seconds += static_cast<double>(step.elapsed_ns) / 1e9 * (step.num_sequences + step.num_waiting);
    }
    const double seconds = static_cast<double>(result.driver.virtual_ns) / 1e9;
    const double rate = static_cast<double>(result.driver.served) / seconds;
    const double wanted = rate * waits_of(result).mean_system_s;
    EXPECT_NEAR(request_seconds / seconds, wanted, 0.01 * wanted);
}

// --- windows

// Of windows of W positions whose drafts are right with probability p, each gives 1 + p + ... + p^(W-1) tokens.
TEST(SimulatedWindows, GiveAsManyTokensAsTheirRateOfAcceptanceSays) {
    TraceBuilder builder;
    for (int i = 0; i < 40; ++i) builder.add_row(lone_request(builder, 0, 1500));
    const traces::Trace trace = builder.finish();
    SimulationConfig config;
    config.engine = roomy_engine();
    const SimulationResult plain = run(config, trace);
    for (const int32_t ppm : {0, 400'000, 800'000, 1'000'000}) {
        SCOPED_TRACE(ppm);
        config.engine.scheduler.max_window = 5;
        config.right_drafts_ppm = ppm;
        const SimulationResult result = run(config, trace);
        const double p = ppm / 1e6;
        const double wanted = 1 + p + p * p + p * p * p + p * p * p * p;
        const auto tokens = static_cast<double>(result.stats.generated_tokens);
        EXPECT_EQ(result.stats.generated_tokens, 40 * 1500) << "windows change when tokens come, not which";
        EXPECT_NEAR(tokens / static_cast<double>(result.stats.windows), wanted, 0.02 * wanted);
        EXPECT_EQ(result.stats.accepted_tokens + result.stats.rolled_back_tokens, result.stats.drafted_tokens);
        if (ppm >= 400'000) EXPECT_LT(result.driver.virtual_ns, plain.driver.virtual_ns);
        EXPECT_EQ(result.digest, run(config, trace).digest);
    }
}

TEST(SimulatedWindows, AWindowIsPricedAsWhatItComputes) {
    TraceBuilder builder;
    builder.add_row(lone_request(builder, 0, 9));
    const traces::Trace trace = builder.finish();
    SimulationConfig config;
    config.engine = roomy_engine();
    config.engine.scheduler.max_window = 4;
    config.right_drafts_ppm = 1'000'000;
    config.record_steps = true;
    const SimulationResult result = run(config, trace);
    std::vector<int64_t> tokens;
    for (const StepSample& step : result.steps) tokens.push_back(step.num_tokens);
    EXPECT_EQ(tokens, (std::vector<int64_t>{2, 4, 4})) << "the prompt, and two windows of four";
}

// --- equal steps

// Every event of a run, in order: which request, head and length, in which step.
void expect_same_decisions(const SimulationConfig& config, const traces::Trace& trace, EvictionChoice eviction,
                           int64_t* num_steps = nullptr) {
    SimulationConfig one_by_one = config;
    one_by_one.merge_equal_steps = false;
    const SimulationResult merged = run(config, trace, eviction, busy_device());
    const SimulationResult stepped = run(one_by_one, trace, eviction, busy_device());
    EXPECT_EQ(merged.decisions, stepped.decisions);
    EXPECT_EQ(merged.stats, stepped.stats);
    EXPECT_EQ(merged.driver.times, stepped.driver.times);
    EXPECT_EQ(merged.driver.virtual_ns, stepped.driver.virtual_ns);
    EXPECT_EQ(merged.driver.peak_running, stepped.driver.peak_running);
    EXPECT_EQ(merged.price.ns, stepped.price.ns) << "not even a sum of prices may differ";
    EXPECT_EQ(merged.peak_blocks, stepped.peak_blocks);
    EXPECT_EQ(merged.peak_state_rows, stepped.peak_state_rows);
    EXPECT_EQ(merged.digest, stepped.digest);
    EXPECT_LE(merged.num_plans, stepped.num_plans);
    EXPECT_EQ(stepped.num_plans, stepped.stats.steps);
    if (num_steps != nullptr) *num_steps += stepped.num_plans - merged.num_plans;
}

// Arrivals, thinking clients, clients that leave, short and long answers, deletes; pools from roomy to far too small.
traces::Trace random_world(Prng& prng) {
    TraceBuilder builder;
    const auto below = [&](int64_t n) { return static_cast<int64_t>(prng.below(static_cast<uint64_t>(n))); };
    const int64_t num_conversations = 3 + below(8);
    int64_t now_ns = 0;
    uint64_t next_space = 1;
    for (int64_t i = 0; i < num_conversations; ++i) {
        const auto conversation = builder.add_conversation(fmt::format("c{}", i), std::nullopt);
        now_ns += below(40) * kMs;
        const int64_t num_turns = 1 + below(4);
        RowIndex before = traces::kNoRow;
        for (int64_t turn = 0; turn < num_turns; ++turn) {
            Row row;
            row.conversation = conversation;
            row.arrival_ns = now_ns;
            row.max_tokens = below(12) == 0 ? 0 : 1 + below(60);
            if (below(5) == 0) row.abort_after = below(30);
            if (before != traces::kNoRow) {
                row.wait_for = before;
                row.start = traces::Start::kAfterAnswer;
                row.think_ns = below(30) * kMs;
            }
            builder.add_piece({next_space++, 0, static_cast<int32_t>(1 + below(50)), true, false});
            before = RowIndex(builder.trace().rows.size());
            builder.add_row(row);
        }
    }
    return builder.finish();
}

TEST(EqualSteps, DecideWhatStepsOneByOneDecide) {
    Prng prng(17);
    const auto below = [&](int64_t n) { return static_cast<int32_t>(prng.below(static_cast<uint64_t>(n))); };
    int64_t num_merged = 0;
    int64_t num_worlds_with_pressure = 0;
    for (int world = 0; world < 150; ++world) {
        SCOPED_TRACE(world);
        const traces::Trace trace = random_world(prng);
        SimulationConfig config;
        config.engine.cache.has_kv = below(8) > 0;
        config.engine.cache.has_state = !config.engine.cache.has_kv || below(3) > 0;
        config.engine.cache.pools.block_size = 1 + below(8);
        config.engine.cache.pools.num_blocks = 300 / config.engine.cache.pools.block_size + below(600);
        config.engine.cache.pools.num_state_rows = 6 + below(40);
        config.engine.cache.lookup = below(2) == 0 ? LookupMode::kConversation : LookupMode::kPrefix;
        config.engine.scheduler.step_tokens = 4 + below(100);
        config.engine.scheduler.max_num_sequences = 1 + below(8);
        if (below(2) == 0) config.engine.scheduler.admission = AdmissionOrder::kFewestTokens;
        config.engine.scheduler.max_wait_steps = below(30);
        config.engine.max_model_len = 280;
        config.max_tokens = 60;
        const auto eviction = static_cast<EvictionChoice>(below(4));
        expect_same_decisions(config, trace, eviction, &num_merged);
        const SimulationResult result = run(config, trace, eviction, busy_device());
        num_worlds_with_pressure += result.stats.evictions + result.stats.preemptions > 0 ? 1 : 0;
    }
    EXPECT_GT(num_merged, 5000) << "few steps were merged: a test of nothing";
    EXPECT_GT(num_worlds_with_pressure, 30);
}

TEST(EqualSteps, MostStepsOfARealTraceAreMerged) {
    int64_t num_merged = 0;
    expect_same_decisions(mooncake_config(), mooncake_trace(800), EvictionChoice::kLru, &num_merged);
    EXPECT_GT(num_merged, 10'000);
}

TEST(EqualSteps, RecordingStepsRunsEveryStep) {
    const traces::Trace trace = mooncake_trace(200);
    SimulationConfig config = mooncake_config();
    config.record_steps = true;
    const SimulationResult result = run(config, trace, EvictionChoice::kLru, busy_device());
    EXPECT_EQ(result.num_plans, result.stats.steps);
    EXPECT_GT(result.steps.size(), 1000u);
}

// What is reported of each step is the run step by step: none stands for several, and the run is the merged one.
TEST(EqualSteps, ReportedStepsAreThoseOfTheRunStepByStep) {
    const traces::Trace trace = mooncake_trace(200);
    SimulationConfig config = mooncake_config();
    const SimulationResult merged = run(config, trace, EvictionChoice::kLru, busy_device());
    ASSERT_LT(merged.num_plans, merged.stats.steps);
    config.record_steps = true;
    const SimulationResult told = run(config, trace, EvictionChoice::kLru, busy_device());
    config.merge_equal_steps = false;
    const SimulationResult stepped = run(config, trace, EvictionChoice::kLru, busy_device());
    EXPECT_EQ(told.steps, stepped.steps);
    EXPECT_EQ(told.digest, merged.digest);
    EXPECT_EQ(told.stats, merged.stats);
    EXPECT_LE(std::ssize(told.steps), merged.stats.steps) << "a step that only moves rows computes nothing";
    EXPECT_EQ(told.price.ns, merged.price.ns);
    int64_t end_ns = 0;
    for (const StepSample& step : told.steps) {
        EXPECT_GE(step.end_ns - step.elapsed_ns, end_ns) << "steps do not overlap";
        end_ns = step.end_ns;
    }
    EXPECT_EQ(end_ns, merged.driver.virtual_ns);
}

// --- decision identity

EngineConfig pressed_engine() {
    EngineConfig config;
    config.cache.pools.block_size = 4;
    config.cache.pools.num_blocks = 70;
    config.cache.pools.num_state_rows = 12;
    config.cache.lookup = LookupMode::kPrefix;
    config.scheduler.step_tokens = 16;
    config.max_model_len = 240;
    return config;
}

struct Recording {
    RecordedRun run;
    Digest decisions;
    DriverReport driver;
    EngineStats stats;
};

// The engine on an executor that is no cost model, with forks, aborts, preemptions and all.
Recording record(const traces::Trace& trace) {
    Recording recording;
    recording.run.answers.resize(trace.rows.size());
    TokenStore store(1000);
    HashExecutor hash({.pools = {.block_size = 4, .num_blocks = 70, .num_state_rows = 12}, .numerics_id = "cost/1"});
    ScribeClock clock(recording.run);
    TimedExecutor timed(hash, clock);
    AnswerRecorder recorder(recording.run);
    LruEviction policy;
    Engine engine(pressed_engine(), timed, policy, store, recorder);
    auto requests = traces::RequestMaker::create(trace, store);
    EXPECT_TRUE(requests.has_value());
    TraceDriver driver({.step_ns = 0, .hooks = &recorder}, trace, *requests, engine, store);
    const auto report = driver.run();
    EXPECT_TRUE(report.has_value());
    recording.driver = *report;
    recording.decisions = recorder.digest.digest();
    recording.stats = engine.stats();
    return recording;
}

TEST(Simulation, TakesTheDecisionsOfARunThatWasRecorded) {
    const traces::Trace trace = scenario();
    Recording recording = record(trace);
    ASSERT_GT(recording.stats.preemptions, 0);
    ASSERT_GT(recording.stats.evictions, 0);
    ASSERT_GT(recording.stats.aborts, 0);
    ASSERT_GT(recording.stats.forks, 0);
    SimulationConfig config;
    config.engine = pressed_engine();
    config.recorded = &recording.run;
    config.digest_plans = true;
    const SimulationResult result = run(config, trace);
    EXPECT_EQ(result.decisions, recording.decisions);
    EXPECT_EQ(result.stats, recording.stats);
    EXPECT_EQ(result.driver.times, recording.driver.times);

    recording.run.elapsed_ns[recording.run.elapsed_ns.size() / 2] += 3000 * kMs;
    EXPECT_NE(run(config, trace).decisions, recording.decisions) << "times that decide nothing are no test";
}

TEST(Simulation, ARecordThatEndsTooEarlyIsAnError) {
    const traces::Trace trace = scenario();
    Recording recording = record(trace);
    recording.run.elapsed_ns.pop_back();
    SimulationConfig config;
    config.engine = pressed_engine();
    config.recorded = &recording.run;
    const ModelShape model;
    const RooflineTimes kernels(clockwork_device());
    StepCost cost(model, clockwork_device(), kernels);
    LruEviction policy;
    const auto result = simulate(config, trace, cost, 1000, policy);
    ASSERT_FALSE(result.has_value());
    EXPECT_NE(result.error().message.find("the recorded run has"), std::string::npos) << result.error().message;
}

}  // namespace
}  // namespace verbatim::tests
