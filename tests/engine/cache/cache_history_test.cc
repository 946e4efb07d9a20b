// A cache that learns: what prompts and heads that are gone leave behind, and what heads are worth to its policy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "engine/cache/cache.h"

namespace verbatim {
namespace {

// Keeps what it ranked last of each head. The longest head goes first, of equal ones a prompt's before a turn's.
class LongestFirst final : public EvictionPolicy {
public:
    [[nodiscard]] int64_t rank(const HeadUse& use) override {
        ranked[use.head] = use;
        return (use.kind == HeadKind::kTurn ? 1 : 0) - 10 * use.length;
    }
    [[nodiscard]] bool ranks_by_worth() const override { return true; }
    [[nodiscard]] bool goes_by_rank_alone() const override { return true; }
    std::map<HeadId, HeadUse> ranked;
};

CacheConfig learning_config(int32_t num_rows = 8) {
    CacheConfig config;
    config.has_state = num_rows > 0;
    config.pools = {.block_size = 4, .num_blocks = 128, .num_state_rows = num_rows};
    config.lookup = LookupMode::kPrefix;
    config.kv_block_bytes = 4;
    config.state_row_bytes = 40;
    config.operations_per_token = 10;
    config.history_boundaries = 64;
    return config;
}

// One conversation, whose tokens are those of space 1.
struct HistoryScene {
    explicit HistoryScene(const CacheConfig& config = learning_config()) : cache(config, policy) {}
    HistoryScene(const CacheConfig& config, EvictionPolicy& other) : cache(config, other) {}

    struct Admitted {
        SequenceMemory memory;
        LookupResult found;
        Cache::Seen seen;
    };
    Admitted admit(const TokenSeq& prompt) {
        const LookupQuery query{.key = key, .tokens = prompt, .numerics_id = "a/1"};
        Admitted admitted{.found = cache.lookup(query)};
        auto memory = cache.attach(admitted.found.head, admitted.found.length);
        EXPECT_TRUE(memory);
        admitted.memory = *std::move(memory);
        admitted.seen = cache.observe(query, admitted.found, admitted.memory);
        return admitted;
    }
    Admitted admit(int64_t length) { return admit(tokens(length)); }
    Cache::Seen seen_of(const TokenSeq& prompt) {
        Admitted admitted = admit(prompt);
        cache.release(admitted.memory);
        return admitted.seen;
    }
    HeadId publish(PendingMemory pending, HeadKind kind) {
        return cache.publish({key, kind, "a/1", std::move(pending)}, {});
    }
    // Computed elsewhere.
    HeadId import(int64_t length, HeadKind kind = HeadKind::kTurn) {
        auto pending = cache.make_pending(key.salt, tokens(length), "a/1");
        EXPECT_TRUE(pending);
        return publish(*std::move(pending), kind);
    }
    // A turn: a snapshot at its prompt's end, and its end.
    std::pair<HeadId, HeadId> run_turn(int64_t prompt, int64_t end) {
        SequenceMemory memory = admit(prompt + 1).memory;
        EXPECT_TRUE(cache.grow(memory, end));
        auto snapshot = cache.snapshot(memory, tokens(prompt));
        EXPECT_TRUE(snapshot);
        const HeadId at_prompt = publish(*std::move(snapshot), HeadKind::kPrompt);
        cache.unpin(memory);
        const HeadId at_end = publish(cache.detach_as_pending(memory, tokens(end)), HeadKind::kTurn);
        cache.release(memory);
        return {at_prompt, at_end};
    }
    int32_t generation(HeadId head) { return cache.find(head)->generation; }
    void evict_all() {
        const int32_t num_rows = cache.config().pools.num_state_rows;
        EXPECT_TRUE(cache.make_room({.kv_blocks = 128, .state_rows = num_rows}, {.spare_expected = false}));
        EXPECT_EQ(cache.num_heads(), 0u);
    }
    TokenSeq tokens(int64_t length) { return store.derive(1, 0, length); }
    // The first tokens of the conversation, then others.
    TokenSeq leaving_at(int64_t length, int64_t size) {
        TokenSeq prompt = tokens(length);
        prompt.append(store.derive(2, 0, size - length));
        return prompt;
    }

    ConversationKey key{{}, "a"};
    TokenStore store{1000};
    LongestFirst policy;
    Cache cache;
};

TEST(CacheHistory, AHeadIsOfTheGenerationBehindTheOneThatItsTurnAttachedTo) {
    HistoryScene scene;
    const auto [first_prompt, first_end] = scene.run_turn(8, 12);
    EXPECT_EQ(scene.generation(first_prompt), 0);
    EXPECT_EQ(scene.generation(first_end), 0);
    const auto [second_prompt, second_end] = scene.run_turn(18, 20);
    EXPECT_EQ(scene.generation(second_prompt), 1);
    EXPECT_EQ(scene.generation(second_end), 1);
    EXPECT_EQ(scene.generation(scene.run_turn(28, 30).second), 2);
}

TEST(CacheHistory, AHeadOfWhichAGhostIsKnownIsOfItsGenerationAtLeast) {
    HistoryScene scene;
    scene.run_turn(8, 12);
    scene.run_turn(18, 20);
    scene.evict_all();
    auto behind = scene.admit(30);
    EXPECT_EQ(behind.found.head, kNoHead);
    EXPECT_EQ(behind.memory.generation, 2) << "behind the ghost of the second turn";
    scene.cache.release(behind.memory);
    EXPECT_EQ(scene.generation(scene.import(20)), 1) << "in its place";
    EXPECT_EQ(scene.generation(scene.import(25)), 0) << "no ghost is of these tokens";
}

TEST(CacheHistory, AHeadInTheGhostsPlaceHasItsUses) {
    HistoryScene scene;
    scene.import(20);
    scene.evict_all();
    (void)scene.seen_of(scene.tokens(30));  // would have used it
    const HeadId again = scene.import(20);
    (void)scene.cache.make_room({.kv_blocks = 128}, {.except = again});
    EXPECT_EQ(scene.policy.ranked.at(again).num_uses, 1);
}

// A head of 20 tokens is there.
TEST(CacheHistory, APromptBranchesWhereItLeavesAHeadBehindWhatItFound) {
    HistoryScene scene;
    scene.import(20);
    scene.import(8, HeadKind::kCheckpoint);
    const auto expect_seen = [&](const TokenSeq& prompt, int64_t branch, int64_t reusable) {
        const Cache::Seen seen = scene.seen_of(prompt);
        EXPECT_EQ(seen.branch, branch) << prompt.size();
        EXPECT_EQ(seen.reusable, reusable) << prompt.size();
    };
    expect_seen(scene.leaving_at(15, 30), 15, 15);
    expect_seen(scene.leaving_at(8, 30), 0, 8);    // it found all that is known
    expect_seen(scene.leaving_at(15, 16), 0, 15);  // one token is computed anyway
    expect_seen(scene.tokens(16), 0, 15);
    expect_seen(scene.tokens(30), 0, 20);
    expect_seen(scene.leaving_at(5, 30), 5, 5);
}

TEST(CacheHistory, AHeadIsWorthWhatIsComputedBehindTheNextShorterOne) {
    HistoryScene scene;
    const HeadId shorter = scene.import(12);
    const HeadId longer = scene.import(20);
    (void)scene.cache.heads();
    EXPECT_EQ(scene.policy.ranked.at(shorter).worth, (HeadValue{.operations = 120, .bytes = 40}));
    EXPECT_EQ(scene.policy.ranked.at(longer).worth, (HeadValue{.operations = 80, .bytes = 40 + 8}));
    ASSERT_TRUE(scene.cache.make_room({.state_rows = 7}, {}));
    EXPECT_EQ(scene.cache.find(longer), nullptr);
    EXPECT_EQ(scene.policy.ranked.at(shorter).worth, (HeadValue{.operations = 120, .bytes = 40 + 12}))
        << "it alone holds the blocks now";
}

TEST(CacheHistory, APrefixStandsInForTheHeadThatIsEvicted) {
    HistoryScene scene;
    const HeadId prompt = scene.import(12, HeadKind::kPrompt);
    const HeadId turn = scene.import(20);
    ASSERT_TRUE(scene.cache.make_room({.state_rows = 7}, {}));
    EXPECT_EQ(scene.cache.find(turn), nullptr);
    EXPECT_EQ(scene.policy.ranked.at(prompt).kind, HeadKind::kTurn);
}

TEST(CacheHistory, OnlyWhatWasEvictedAndIsFollowedLeavesAGhost) {
    HistoryScene evicted;
    evicted.import(20);
    evicted.evict_all();
    EXPECT_EQ(evicted.seen_of(evicted.tokens(30)).reusable, 20);
    HistoryScene lost;
    lost.import(20);
    lost.cache.lose_heads();
    EXPECT_EQ(lost.seen_of(lost.tokens(30)).reusable, 0);
    LruEviction lru;
    HistoryScene unfollowed(learning_config(), lru);
    unfollowed.import(20);
    unfollowed.evict_all();
    EXPECT_EQ(unfollowed.seen_of(unfollowed.tokens(30)).reusable, 0);
}

// A prompt that leaves a head in the middle publishes a head there, which is used instead.
TEST(CacheHistory, APartOfAHeadThatIsReusedIsNoUseOfIt) {
    HistoryScene scene(learning_config(0));
    const HeadId head = scene.import(20);
    auto part = scene.admit(scene.leaving_at(13, 30));
    EXPECT_EQ(part.found.length, 12);
    EXPECT_EQ(part.memory.generation, 0);
    scene.cache.release(part.memory);
    (void)scene.cache.heads();
    EXPECT_EQ(scene.policy.ranked.at(head).num_uses, 0);
    auto whole = scene.admit(30);
    EXPECT_EQ(whole.memory.generation, 1);
    scene.cache.release(whole.memory);
    (void)scene.cache.heads();
    EXPECT_EQ(scene.policy.ranked.at(head).num_uses, 1);
}

TEST(CacheHistory, AnImportIsATurnsEndWhereItIsTheLongestOfItsName) {
    HistoryScene scene;
    EXPECT_EQ(scene.cache.kind_of_import(scene.key, 8), HeadKind::kTurn);
    scene.import(8);
    EXPECT_EQ(scene.cache.kind_of_import(scene.key, 7), HeadKind::kCheckpoint);
    EXPECT_EQ(scene.cache.kind_of_import(scene.key, 8), HeadKind::kCheckpoint);
    EXPECT_EQ(scene.cache.kind_of_import(scene.key, 9), HeadKind::kTurn);
}

// The heads that its name let go lie before it on the way from the root.
TEST(CacheHistory, AHeadComesInBehindTheNewestOfItsNameWithoutASearch) {
    CacheConfig config = learning_config(64);
    config.keep_turn_heads = 1;
    HistoryScene scene(config);
    int64_t length = 4;
    for (; length <= 120; length += 4) scene.import(length);
    auto pending = scene.cache.make_pending({}, scene.tokens(length), "a/1");
    ASSERT_TRUE(pending);
    const int64_t before = scene.cache.num_index_visits();
    scene.publish(*std::move(pending), HeadKind::kTurn);
    EXPECT_EQ(scene.cache.num_heads(), 31u);
    EXPECT_EQ(scene.cache.num_index_visits(), before);
}

}  // namespace
}  // namespace verbatim
