// tests/benchmarks/cache_benchmark.cc: the cache alone, by value, with up to a million conversations: what one of them
// costs, and a lookup among their heads (docs/measurements/simulator.md).
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <optional>
#include <vector>

#include "engine/base/check.h"
#include "engine/cache/cache.h"

namespace verbatim {
namespace {

constexpr int64_t kPrompt = 64;

// A prompt of tokens that no other conversation has, and an answer: a prompt head and a turn head each.
struct Conversations {
    // Without prompt heads: a head and a conversation each.
    Conversations(int64_t num_conversations, int64_t num_rows, bool with_prompt_heads = true)
        : has_prompt_heads(with_prompt_heads), cache(config_for(num_rows), policy) {
        for (int64_t i = 0; i < num_conversations; ++i) run(i);
    }
    static CacheConfig config_for(int64_t num_rows) {
        CacheConfig config{.pools = {.num_blocks = static_cast<int32_t>(8 * num_rows) + 64,
                                     .num_state_rows = static_cast<int32_t>(num_rows) + 8}};
        config.lookup = LookupMode::kPrefix;
        config.history_boundaries = kUsualHistoryBoundaries;
        config.state_row_bytes = 1 << 20;
        config.kv_block_bytes = 1 << 17;
        return config;
    }
    [[nodiscard]] static ConversationKey key_of(int64_t conversation) {
        return {{}, fmt::format("conversation-{}", conversation)};
    }
    [[nodiscard]] TokenSeq tokens_of(int64_t conversation, int64_t length) {
        return store.derive(static_cast<uint64_t>(conversation), 0, length);
    }
    void run(int64_t conversation) {
        const ConversationKey key = key_of(conversation);
        const TokenSeq prompt = tokens_of(conversation, kPrompt);
        const LookupQuery query{.key = key, .tokens = prompt, .numerics_id = "a/1"};
        LookupResult found = cache.lookup(query);
        CHECK(cache.make_room({8, 1}, {.except = found.head, .spare_expected = false}));
        auto memory = cache.attach(found.head);
        CHECK(memory && cache.grow(*memory, kPrompt + 9));
        cache.observe(query, found, *memory);
        (void)cache.make_room({.state_rows = 1}, {.spare_proven = true});
        auto snapshot = has_prompt_heads ? cache.snapshot(*memory, prompt.slice(0, kPrompt - 1)) : std::nullopt;
        if (snapshot) cache.publish({key, HeadKind::kPrompt, "a/1", *std::move(snapshot)}, {});
        PendingMemory pending = cache.detach_as_pending(*memory, tokens_of(conversation, kPrompt + 9));
        cache.release(*memory);
        cache.publish({key, HeadKind::kTurn, "a/1", std::move(pending)}, {});
        cache.complete_step(step++);
    }
    bool has_prompt_heads;
    TokenStore store{50'000};
    ValueEviction policy;
    Cache cache;
    int64_t step = 0;
};

int64_t allocated_bytes() {
    const struct mallinfo2 info = mallinfo2();
    return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

// So many conversations, one after another; the cache has rows for so many heads.
void SmallConversations(benchmark::State& state) {
    const int64_t before = allocated_bytes();
    int64_t bytes = 0;
    int64_t num_heads = 0;
    for (auto _ : state) {
        const Conversations conversations(state.range(0), state.range(1));
        bytes = allocated_bytes() - before;
        num_heads = static_cast<int64_t>(conversations.cache.num_heads());
    }
    const auto num_conversations = static_cast<double>(state.range(0) * state.iterations());
    state.counters["conversations/s"] = benchmark::Counter(num_conversations, benchmark::Counter::kIsRate);
    state.counters["heads"] = static_cast<double>(num_heads);
    state.counters["bytes/head"] = static_cast<double>(bytes) / static_cast<double>(num_heads);
}
void sizes(benchmark::internal::Benchmark* conversations) {
    conversations->ArgNames({"conversations", "rows"})->Iterations(1)->Unit(benchmark::kMillisecond);
    for (const int64_t rows : {int64_t{600}, int64_t{2'000'000}}) {
        for (const int64_t count : {12'500, 25'000, 50'000, 100'000, 200'000, 500'000, 1'000'000})
            conversations->Args({count, rows});
    }
}
BENCHMARK(SmallConversations)->Apply(sizes);

// What a head takes that is alone in its conversation, and its tokens alone.
void BytesOfALoneHead(benchmark::State& state) {
    const int64_t before = allocated_bytes();
    int64_t bytes = 0;
    int64_t bytes_of_tokens = 0;
    for (auto _ : state) {
        Conversations conversations(state.range(0), state.range(0), /*with_prompt_heads=*/false);
        bytes = allocated_bytes() - before;
        std::vector<TokenSeq> tokens(static_cast<size_t>(state.range(0)));
        const int64_t with_list = allocated_bytes();
        for (TokenSeq& each : tokens) each = conversations.tokens_of(&each - tokens.data(), kPrompt + 9);
        bytes_of_tokens = allocated_bytes() - with_list;
        CHECK_EQ(static_cast<int64_t>(conversations.cache.num_heads()), state.range(0));
    }
    state.counters["bytes/head"] = static_cast<double>(bytes) / static_cast<double>(state.range(0));
    state.counters["tokens' bytes/head"] = static_cast<double>(bytes_of_tokens) / static_cast<double>(state.range(0));
}
BENCHMARK(BytesOfALoneHead)->ArgName("heads")->Arg(50'000)->Arg(500'000)->Iterations(1)->Unit(benchmark::kMillisecond);

// Prompts of a new conversation that go on from a head of some other one.
void LookupAmongHeads(benchmark::State& state) {
    Conversations conversations(state.range(0) / 2, state.range(0));
    int64_t next = 0;
    const ConversationKey key{{}, "another"};
    for (auto _ : state) {
        state.PauseTiming();
        next = (next + 7919) % (state.range(0) / 2);
        const TokenSeq tokens = conversations.tokens_of(next, kPrompt + 20);
        state.ResumeTiming();
        const LookupResult found = conversations.cache.lookup({.key = key, .tokens = tokens, .numerics_id = "a/1"});
        CHECK_EQ(found.length, kPrompt + 9);
    }
}
BENCHMARK(LookupAmongHeads)->ArgName("heads")->Arg(1'000)->Arg(1'000'000)->Iterations(100'000);

}  // namespace
}  // namespace verbatim

BENCHMARK_MAIN();
