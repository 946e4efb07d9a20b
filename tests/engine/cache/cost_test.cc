// What calls cost, in segments, places and heads that they look at: times would differ from run to run.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>

#include "engine/cache/cache.h"
#include "engine/engine.h"
#include "tests/support/null_executor.h"
#include "tests/support/sanitized.h"

namespace verbatim {
namespace {

const char* name_of(LookupMode mode) { return mode == LookupMode::kPrefix ? "prefix" : "conversation"; }

// The most that publishing a head and evicting one for a block and for a row looks at, with so many heads that go on
// from one.
int64_t visits_of_an_eviction(LookupMode mode, int32_t num_sharers) {
    CacheConfig config{.pools = {.num_blocks = 4 * num_sharers + 64, .num_state_rows = 2 * num_sharers + 64}};
    config.lookup = mode;
    LruEviction policy;
    TokenStore store(50000);
    Cache cache(config, policy);
    const auto publish = [&](HeadId from, int64_t conversation, int64_t length) {
        TokenSeq tokens = store.derive(0, 0, 64);
        tokens.append(store.derive(static_cast<uint64_t>(conversation) + 1, 0, length - 64));
        auto memory = cache.attach(from);
        EXPECT_TRUE(memory && cache.grow(*memory, length));
        PendingMemory pending = cache.detach_as_pending(*memory, std::move(tokens));
        cache.release(*memory);
        const ConversationKey key{{}, fmt::format("c{}", conversation)};
        return cache.publish({key, HeadKind::kTurn, "a/1", std::move(pending)}, {});
    };
    const HeadId root = publish(kNoHead, 0, 64);
    int64_t next = 1;
    while (next <= num_sharers) publish(root, next++, 100);
    int64_t most = 0;
    EXPECT_TRUE(cache.make_room({.kv_blocks = cache.kv().pool().num_free() + 1}, {}));  // takes in all of them
    for (int i = 0; i < 20; ++i) {
        const int64_t before = cache.num_visits();
        publish(root, next++, 100);
        const int32_t num_free = cache.kv().pool().num_free();
        EXPECT_TRUE(cache.make_room({num_free + 1, cache.state().pool().num_free() + 1}, {}));
        most = std::max(most, cache.num_visits() - before);
    }
    return most;
}

TEST(Cost, AnEvictionLooksAtNoMoreWhateverIsShared) {
    for (const LookupMode mode : {LookupMode::kConversation, LookupMode::kPrefix}) {
        SCOPED_TRACE(name_of(mode));
        const int64_t few = visits_of_an_eviction(mode, 16);
        EXPECT_GT(few, 0);
        EXPECT_LE(few, 100);
        EXPECT_LE(visits_of_an_eviction(mode, 16'000), few);
    }
}

// The most that a turn of a conversation looks at that is so many turns old.
int64_t visits_of_a_turn(LookupMode mode, int64_t num_turns) {
    EngineConfig config;
    config.cache.pools = {.num_blocks = 1 << 16, .num_state_rows = 1 << 14};
    config.cache.lookup = mode;
    config.scheduler.step_tokens = 8192;
    config.max_model_len = 1 << 24;
    TokenStore store{50000};
    NullExecutor executor;
    NullRecorder recorder;
    LruEviction policy;
    Engine engine(config, executor, policy, store, recorder);
    uint64_t space = 1;
    int64_t most = 0;
    for (int64_t turn = 0; turn < num_turns + 20; ++turn) {
        const int64_t before = engine.cache().num_visits();
        ChatRequest request;
        request.conversation.conversation_id = "c";
        request.input = turn == 0 ? InputKind::kHistory : InputKind::kSuffix;
        request.messages.push_back({store.derive(space++, 0, 25)});
        request.max_tokens = 4;
        request.ignore_stop = true;
        EXPECT_TRUE(engine.submit(std::move(request)));
        while (*engine.step()) (void)engine.take_events();
        if (turn >= num_turns) most = std::max(most, engine.cache().num_visits() - before);
    }
    EXPECT_EQ(engine.stats().commits, num_turns + 20);
    return most;
}

TEST(Cost, ATurnLooksAtNoMoreHoweverOldItsConversationIs) {
    for (const LookupMode mode : {LookupMode::kConversation, LookupMode::kPrefix}) {
        SCOPED_TRACE(name_of(mode));
        const int64_t young = visits_of_a_turn(mode, 50);
        EXPECT_LE(young, 200);
        EXPECT_LE(visits_of_a_turn(mode, 3200), young);
    }
}

// One head each of so many conversations, in prefix mode and by value.
struct ManyHeads {
    explicit ManyHeads(int32_t num_heads) : cache(config_for(num_heads), policy) {
        for (int32_t i = 0; i < num_heads; ++i) publish(i);
    }
    static CacheConfig config_for(int32_t num_heads) {
        CacheConfig config{.pools = {.num_blocks = 4 * num_heads + 64, .num_state_rows = num_heads + 64}};
        config.lookup = LookupMode::kPrefix;
        config.history_boundaries = 1 << 10;
        return config;
    }
    TokenSeq tokens_of(int32_t conversation, int64_t length) {
        return store.derive(static_cast<uint64_t>(conversation), 0, length);
    }
    void publish(int32_t conversation) {
        const ConversationKey key{{}, fmt::format("conversation-{}", conversation)};
        TokenSeq tokens = tokens_of(conversation, 40);
        const LookupQuery query{.key = key, .tokens = tokens, .numerics_id = "a/1"};
        LookupResult found = cache.lookup(query);
        auto memory = cache.attach(found.head);
        EXPECT_TRUE(memory && cache.grow(*memory, 40));
        cache.observe(query, found, *memory);
        PendingMemory pending = cache.detach_as_pending(*memory, std::move(tokens));
        cache.release(*memory);
        cache.publish({key, HeadKind::kTurn, "a/1", std::move(pending)}, {});
    }
    TokenStore store{50'000};
    ValueEviction policy;
    Cache cache;
};

// Nodes of the prefix index that lookups of other conversations look at, at most.
int64_t most_index_visits(ManyHeads& heads, int32_t num_heads) {
    int64_t most = 0;
    for (int32_t i = 0; i < num_heads; i += num_heads / 200) {
        const int64_t before = heads.cache.num_index_visits();
        const TokenSeq tokens = heads.tokens_of(i, 60);
        const LookupResult found = heads.cache.lookup({.key = {{}, "another"}, .tokens = tokens, .numerics_id = "a/1"});
        EXPECT_EQ(found.length, 40);
        most = std::max(most, heads.cache.num_index_visits() - before);
    }
    return most;
}

TEST(Cost, ALookupByTokensLooksAtNoMoreAmongManyHeads) {
    ManyHeads few(1'000);
    ManyHeads many(tests::kSanitized ? 10'000 : 50'000);
    EXPECT_LE(most_index_visits(few, 1'000), 4);
    EXPECT_LE(most_index_visits(many, 10'000), 4);
}

// What malloc has given out: blocks of the heap, and those that it maps.
[[maybe_unused]] int64_t allocated_bytes() {
    const struct mallinfo2 info = mallinfo2();
    return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

// Its conversation of that one head included.
TEST(Cost, AHeadTakesAtMost1450BytesWithItsTokens) {
    if (tests::kSanitized) GTEST_SKIP() << "a sanitizer has an allocator of its own";
    constexpr int32_t kHeads = 50'000;
    const int64_t before = allocated_bytes();
    ManyHeads heads(kHeads);
    const int64_t bytes = (allocated_bytes() - before) / kHeads;
    fmt::print("{} bytes a head\n", bytes);
    EXPECT_EQ(heads.cache.num_heads(), static_cast<size_t>(kHeads));
    EXPECT_LE(bytes, 1450);
    EXPECT_GT(bytes, 100);
}

// How often a waiting request is looked up while so many wait, and all of them come in one after another.
int64_t lookups_of_a_crowd(AdmissionOrder admission, int64_t num_waiting) {
    EngineConfig config;
    config.cache.pools = {.num_blocks = 1 << 16, .num_state_rows = 1 << 14};
    config.scheduler.max_num_sequences = 4;
    config.scheduler.admission = admission;
    config.scheduler.max_wait_steps = 1 << 30;
    TokenStore store{50000};
    NullExecutor executor;
    NullRecorder recorder;
    LruEviction policy;
    Engine engine(config, executor, policy, store, recorder);
    for (int64_t i = 0; i < num_waiting; ++i) {
        ChatRequest request;
        request.conversation.conversation_id = fmt::format("c{}", i);
        request.messages.push_back({store.derive(static_cast<uint64_t>(i), 0, 1 + i * 7919 % 60)});
        request.max_tokens = 2;
        request.ignore_stop = true;
        EXPECT_TRUE(engine.submit(std::move(request)));
    }
    while (*engine.step()) (void)engine.take_events();
    EXPECT_EQ(engine.stats().commits, num_waiting);
    EXPECT_EQ(engine.stats().preemptions, 0);
    return engine.stats().admission_lookups;
}

TEST(Cost, ARequestIsLookedUpOnceWhenItsTurnComesHoweverManyWait) {
    for (const AdmissionOrder admission : {AdmissionOrder::kArrival, AdmissionOrder::kFewestTokens}) {
        SCOPED_TRACE(name(admission));
        EXPECT_EQ(lookups_of_a_crowd(admission, 16), 16);
        EXPECT_EQ(lookups_of_a_crowd(admission, 4000), 4000);
    }
}

// Sequences at so many places of one head: what the last of them looks at as it comes and goes.
int64_t visits_at_places(int32_t num_places) {
    KvGroup kv(true, 1, 2 * num_places);
    BlockTable sequence;
    EXPECT_TRUE(kv.grow(sequence, num_places));
    BlockTable head = kv.detach_as_pending(sequence, num_places, kNoStep);
    kv.publish(head, HeadId{0});
    std::vector<KvGroup::Attached> attached;
    for (int32_t place = 1; place < num_places; ++place) attached.push_back(*kv.attach(head, place));
    const int64_t before = kv.num_visits();
    kv.release_sequence(attached.at(attached.size() / 2).table, kNoStep);
    kv.release_sequence(attached.back().table, kNoStep);
    EXPECT_TRUE(kv.attach(head, num_places - 1));
    EXPECT_EQ(kv.num_active_blocks(), num_places - 1);
    return kv.num_visits() - before;
}

TEST(Cost, APlaceIsFoundAmongManyInLogarithmicallyManyLooks) {
    const int64_t few = visits_at_places(16);
    EXPECT_GT(few, 0);
    EXPECT_LE(visits_at_places(16'000), few + 6 * 10);  // 2^10 times as many places, looked for six times
}

// A list of blocks is as long as it is, and no deeper than the stack.
TEST(Cost, ATableOfAHundredThousandSegmentsIsRead) {
    constexpr int32_t kSegments = 100'000;
    KvGroup kv(true, 1, kSegments);
    BlockTable head;
    for (int32_t i = 0; i < kSegments; ++i) {
        auto attached = kv.attach(head, i);
        ASSERT_TRUE(attached && kv.grow(attached->table, i + 1));
        head = kv.detach_as_pending(attached->table, i + 1, kNoStep);
        kv.publish(head, HeadId{i});
    }
    EXPECT_EQ(kv.num_segments(), static_cast<size_t>(kSegments));
    int64_t num_blocks = 0;
    for (const BlockRun& run : kv.runs(head)) num_blocks += run.count;
    EXPECT_EQ(num_blocks, kSegments);
}

}  // namespace
}  // namespace verbatim
