// tests/benchmarks/trace_benchmark.cc: what the cache's policies decide on a recorded trace: how much is reused and how
// long requests wait, while nobody computes. Figures that no bit of an output would show (docs/measurements/engine.md).
#include <benchmark/benchmark.h>

#include <unordered_map>

#include "engine/base/check.h"
#include "simulator/trace_driver.h"
#include "tests/support/null_executor.h"
#include "tests/support/plain_lru.h"
#include "traces/read.h"

namespace verbatim {
namespace {

constexpr int32_t kUnlimited = 1 << 26;

// Steps that requests waited between their submission and their first step.
class WaitRecorder final : public NullRecorder {
public:
    void on_event(const Event& event) override {
        if (event.kind == EventKind::kSubmit) submitted_.emplace(event.request, event.step + 1);
        if (event.kind != EventKind::kAttach) return;
        const auto found = submitted_.find(event.request);
        if (found == submitted_.end()) return;  // admitted again after a preemption
        steps_ += event.step - found->second;
        ++admitted_;
        submitted_.erase(found);
    }
    [[nodiscard]] double mean() const { return static_cast<double>(steps_) / static_cast<double>(admitted_); }

private:
    std::unordered_map<RequestId, int64_t> submitted_;
    int64_t steps_ = 0;
    int64_t admitted_ = 0;
};

const traces::Trace& mooncake() {
    static const traces::ReadTrace trace = [] {
        auto read = traces::read_trace(VERBATIM_SOURCE_DIR "/traces/data/mooncake_conversation_trace.jsonl.gz");
        CHECK(read.has_value(), "{}", read.error().message);
        return *std::move(read);
    }();
    return trace.trace;
}

struct Outcome {
    EngineStats stats;
    double mean_wait_steps = 0;
};

Outcome replay(const traces::Trace& trace, int32_t num_blocks, int32_t num_state_rows, EvictionPolicy& policy) {
    EngineConfig config;
    config.cache.num_blocks = num_blocks;
    config.cache.num_state_rows = num_state_rows;
    config.scheduler.step_tokens = 8192;
    config.max_model_len = 1 << 20;
    TokenStore store(50000);
    NullExecutor executor;
    WaitRecorder recorder;
    Engine engine(config, executor, policy, store, recorder);
    auto requests = traces::RequestMaker::create(trace, store);
    CHECK(requests.has_value());
    TraceDriver driver({.step_ns = 20'000'000}, trace, *requests, engine, store);
    const auto report = driver.run();
    CHECK(report.has_value(), "{}", report.error().message);
    return {engine.stats(), recorder.mean()};
}

template <typename Policy>
void Mooncake(benchmark::State& state) {
    Outcome outcome;
    for (auto _ : state) {
        Policy policy;
        outcome =
            replay(mooncake(), static_cast<int32_t>(state.range(0)), static_cast<int32_t>(state.range(1)), policy);
    }
    state.counters["reused_tokens"] = static_cast<double>(outcome.stats.reused_tokens);
    state.counters["evictions"] = static_cast<double>(outcome.stats.evictions);
    state.counters["preemptions"] = static_cast<double>(outcome.stats.preemptions);
    state.counters["recomputed"] = static_cast<double>(outcome.stats.recomputed_tokens);
    state.counters["steps_without_room"] = static_cast<double>(outcome.stats.steps_without_room);
    state.counters["steps"] = static_cast<double>(outcome.stats.steps);
    state.counters["wait_steps"] = outcome.mean_wait_steps;
}
// Blocks of 16 tokens and state rows; the last is more than the trace can use.
void pool_sizes(benchmark::internal::Benchmark* mooncake) {
    mooncake->ArgNames({"blocks", "rows"})->Iterations(1)->Unit(benchmark::kMillisecond);
    for (const auto& [blocks, rows] :
         {std::pair{100'000, 700}, std::pair{200'000, 700}, std::pair{229'000, 390}, std::pair{400'000, 2'000},
          std::pair{1'000'000, 4'000}, std::pair{2'000'000, 8'000}, std::pair{kUnlimited, kUnlimited}}) {
        mooncake->Args({blocks, rows});
    }
}
BENCHMARK(Mooncake<LruEviction>)->Apply(pool_sizes);
BENCHMARK(Mooncake<PlainLru>)->Apply(pool_sizes);

}  // namespace
}  // namespace verbatim

BENCHMARK_MAIN();
