// tests/benchmarks/engine_benchmark.cc: the cost of the engine's code without computation: per running request and
// step, and per request that is admitted and committed.
#include <benchmark/benchmark.h>

#include <vector>

#include "engine/base/check.h"
#include "engine/engine.h"
#include "tests/support/null_executor.h"

namespace verbatim {
namespace {

EngineConfig config() {
    EngineConfig config;
    config.cache.pools.num_blocks = 1 << 20;
    config.cache.pools.num_state_rows = 4096;
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

// The same for one conversation that is state.range(0) turns old when it begins: a turn costs what it adds. With
// state.range(1) all its heads of so long stay, found by their tokens.
void TurnOfALongConversation(benchmark::State& state) {
    EngineConfig engine_config = config();
    if (state.range(1) != 0) engine_config.cache.lookup = LookupMode::kPrefix;
    Bench bench(engine_config);
    bench.submit(0, 33, 4, InputKind::kHistory);
    bench.run();
    for (int64_t i = 0; i < state.range(0); ++i) {
        bench.submit(0, 25, 4, InputKind::kSuffix);
        bench.run();
    }
    for (auto _ : state) {
        bench.submit(0, 25, 4, InputKind::kSuffix);
        bench.run();
    }
}
BENCHMARK(TurnOfALongConversation)->ArgNames({"turns", "prefix"})->ArgsProduct({{50, 3200}, {0, 1}})->Iterations(100);

// An eviction for a block and for a row, while state.range(0) heads share their first blocks.
void Eviction(benchmark::State& state) {
    const auto num_heads = static_cast<int32_t>(state.range(0));
    CacheConfig config{.pools = {.num_blocks = 4 * num_heads + 64, .num_state_rows = 2 * num_heads + 64}};
    LruEviction policy;
    TokenStore store(50000);
    Cache cache(config, policy);
    const auto publish = [&](HeadId from, int64_t conversation, int64_t length) {
        const TokenSeq shared = store.derive(0, 0, 64);
        TokenSeq tokens = shared;
        tokens.append(store.derive(static_cast<uint64_t>(conversation) + 1, 0, length - 64));
        auto memory = cache.attach(from);
        CHECK(memory && cache.grow(*memory, length));
        PendingMemory pending = cache.detach_as_pending(*memory, std::move(tokens));
        cache.release(*memory);
        const ConversationKey key{{}, fmt::format("c{}", conversation)};
        return cache.publish({key, HeadKind::kTurn, "a/1", std::move(pending)}, {});
    };
    const HeadId root = publish(kNoHead, 0, 64);
    int64_t next = 1;
    for (; next <= num_heads; ++next) publish(root, next, 100);
    for (auto _ : state) {
        publish(root, next++, 100);
        const bool made = cache.make_room({cache.kv().pool().num_free() + 1, cache.state().pool().num_free()}, {});
        CHECK(made);
    }
}
BENCHMARK(Eviction)->Arg(16)->Arg(1000)->Arg(16000)->Iterations(2000);

}  // namespace
}  // namespace verbatim

BENCHMARK_MAIN();
