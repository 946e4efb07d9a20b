// tests/benchmarks/trace_benchmark.cc: the decisions of the cache's policies on a recorded trace, without computation:
// the reuse and the waiting times, which no bit of an output shows (docs/measurements/engine.md).
#include <benchmark/benchmark.h>

#include "tests/support/plain_lru.h"
#include "tests/support/trace_run.h"
#include "tests/support/wait_recorder.h"

namespace verbatim {
namespace {

constexpr int32_t kUnlimited = 1 << 26;

template <typename Policy, AdmissionOrder Admission = AdmissionOrder::kArrival, int32_t MaxWaitSteps = 100>
void Mooncake(benchmark::State& state) {
    static const traces::Trace trace = mooncake_trace(0);
    EngineStats stats;
    WaitRecorder recorder;
    for (auto _ : state) {
        Policy policy;
        recorder = {};
        stats = run_trace(trace, static_cast<int32_t>(state.range(0)), static_cast<int32_t>(state.range(1)), policy,
                          recorder, Admission, MaxWaitSteps);
    }
    state.counters["reused_tokens"] = static_cast<double>(stats.reused_tokens);
    state.counters["evictions"] = static_cast<double>(stats.evictions);
    state.counters["preemptions"] = static_cast<double>(stats.preemptions);
    state.counters["recomputed"] = static_cast<double>(stats.recomputed_tokens);
    state.counters["steps_without_room"] = static_cast<double>(stats.steps_without_room);
    state.counters["steps"] = static_cast<double>(stats.steps);
    state.counters["wait_steps"] = recorder.mean();
    state.counters["wait_steps_p99"] = static_cast<double>(recorder.percentile(99));
    state.counters["wait_steps_longest"] = static_cast<double>(recorder.percentile(100));
    state.counters["steps_to_first_token"] = recorder.mean_to_first_token();
    state.counters["admission_lookups"] = static_cast<double>(stats.admission_lookups);
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
BENCHMARK(Mooncake<LruEviction, AdmissionOrder::kFewestTokens>)->Apply(pool_sizes);
BENCHMARK(Mooncake<LruEviction, AdmissionOrder::kFewestTokens, 8>)->Apply(pool_sizes);

}  // namespace
}  // namespace verbatim

BENCHMARK_MAIN();
