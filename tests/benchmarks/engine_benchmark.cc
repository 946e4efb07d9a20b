// tests/benchmarks/engine_benchmark.cc: what the engine's own code costs, without anybody computing: per running
// request and step, and per request that is admitted and committed.
#include <benchmark/benchmark.h>

#include <vector>

#include "engine/base/check.h"
#include "engine/engine/engine.h"

namespace verbatim {
namespace {

// Draws a fixed token for everybody at once.
class NullExecutor final : public Executor {
public:
    Status execute(const StepPlan& plan, StepResult& result) override {
        result.step = plan.step;
        result.materialised_through_step = plan.step;
        result.sampled.clear();
        for (const ScheduledSequence& sequence : plan.sequences) {
            if (sequence.samples) result.sampled.push_back({sequence.slot, 1, -1});
        }
        return {};
    }
    std::optional<Digest> head_digest(const HeadImage&) override { return std::nullopt; }
    [[nodiscard]] std::string numerics_id() const override { return "null/1"; }
};

class NullRecorder final : public Recorder {
public:
    void on_plan(const StepPlan&) override {}
    void on_token(RequestId, TokenId) override {}
    void on_event(const Event&) override {}
};

EngineConfig config() {
    EngineConfig config;
    config.cache.num_blocks = 1 << 20;
    config.cache.num_state_rows = 4096;
    config.scheduler.step_tokens = 8192;
    config.max_model_len = 1 << 24;
    return config;
}

struct Bench {
    explicit Bench(const EngineConfig& engine_config) : engine(engine_config, executor, policy, store, recorder) {}
    TokenStore store{50000};
    NullExecutor executor;
    NullRecorder recorder;
    LruEviction policy;
    Engine engine;

    void submit(int64_t conversation, int64_t prompt_tokens, int64_t max_tokens, InputKind input) {
        ChatRequest request;
        request.conversation.conversation_id = fmt::format("c{}", conversation);
        request.input = input;
        request.messages.push_back({store.derive(static_cast<uint64_t>(next_space_++), 0, prompt_tokens)});
        request.max_tokens = max_tokens;
        request.ignore_stop = true;
        CHECK(engine.submit(std::move(request)).has_value());
    }
    void run() {
        while (*engine.step()) (void)engine.take_events();
    }

private:
    int64_t next_space_ = 1;
};

// Time per step over the number of running requests, all of them decoding.
void DecodeStep(benchmark::State& state) {
    const int64_t num_running = state.range(0);
    Bench bench(config());
    for (int64_t i = 0; i < num_running; ++i) bench.submit(i, 1000, 1 << 20, InputKind::kHistory);
    while (static_cast<int64_t>(bench.engine.scheduler().scheduled().size()) < num_running ||
           bench.engine.stats().generated_tokens < 2 * num_running) {
        CHECK(bench.engine.step().has_value());
    }
    for (auto _ : state) {
        benchmark::DoNotOptimize(bench.engine.step());
        (void)bench.engine.take_events();
    }
    state.counters["per_request"] = benchmark::Counter(
        static_cast<double>(num_running), benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(DecodeStep)->Arg(1)->Arg(16)->Arg(256)->Iterations(3000);

// One turn of a conversation that goes on: submit, attach, prefill, one token, commit.
void TurnOfAConversation(benchmark::State& state) {
    Bench bench(config());
    constexpr int64_t kConversations = 500;
    for (int64_t i = 0; i < kConversations; ++i) bench.submit(i, 4000, 1, InputKind::kHistory);
    bench.run();
    int64_t turn = 0;
    for (auto _ : state) {
        bench.submit(turn++ % kConversations, 100, 1, InputKind::kSuffix);
        bench.run();
    }
    CHECK_EQ(bench.engine.stats().commits, turn + kConversations);
}
BENCHMARK(TurnOfAConversation);

}  // namespace
}  // namespace verbatim

BENCHMARK_MAIN();
