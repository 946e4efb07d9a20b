// The cache without an engine around it: what attaching, publishing, evicting and names do to heads and memory.
#include "engine/cache/cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/engine_scene.h"

namespace verbatim {
namespace {

using ::testing::ElementsAre;
using tests::iota_tokens;

constexpr const char* kNumerics = "a/1";

CacheConfig config_of(int32_t num_blocks, int32_t num_rows) {
    CacheConfig config;
    config.has_kv = num_blocks > 0;
    config.has_state = num_rows > 0;
    config.pools.block_size = 4;
    config.pools.num_blocks = num_blocks;
    config.pools.num_state_rows = num_rows;
    return config;
}

struct Scene {
    explicit Scene(const CacheConfig& config = config_of(16, 8)) : cache(config, policy) {}

    static ConversationKey key(const std::string& id, std::optional<std::string> salt = {}) {
        return {CacheSalt{std::move(salt)}, id};
    }
    // A head over the first `length` of the tokens 0, 1, 2, ..., from zero.
    HeadId publish(const std::string& id, int64_t length, HeadKind kind = HeadKind::kTurn, TokenId first = 0,
                   const std::string& numerics = kNumerics) {
        auto memory = cache.attach(kNoHead);
        EXPECT_TRUE(memory && cache.grow(*memory, length));
        return publish_from(*memory, id, length, kind, first, numerics);
    }
    HeadId publish_from(SequenceMemory& memory, const std::string& id, int64_t length, HeadKind kind = HeadKind::kTurn,
                        TokenId first = 0, const std::string& numerics = kNumerics) {
        PendingMemory pending = cache.detach_as_pending(memory, store.store(iota_tokens(first, length)));
        cache.release(memory);
        return cache.publish({key(id), kind, numerics, std::move(pending)}, {});
    }
    LookupResult lookup(const std::string& id, int64_t size, int64_t num_committed = 0,
                        std::optional<int64_t> seam = {}, bool use_cache = true) {
        const ConversationKey conversation = key(id);
        const TokenSeq tokens = store.store(iota_tokens(0, size));
        return cache.lookup({.key = conversation,
                             .tokens = tokens,
                             .num_committed = num_committed,
                             .seam = seam,
                             .use_cache = use_cache,
                             .numerics_id = kNumerics});
    }
    bool make_room(int32_t kv_blocks, int32_t state_rows) {
        return cache.make_room({kv_blocks, state_rows}, {.spare_expected = false});
    }
    std::vector<int64_t> lengths(const std::string& id) {
        std::vector<int64_t> found;
        for (const NamedHead& entry : cache.find(key(id))->heads) found.push_back(entry.length);
        return found;
    }

    TokenStore store{1000};
    LruEviction policy;
    Cache cache;
};

NotReusedRange range(int64_t end, NotReused reason) { return {end, reason}; }

// Wherever a history turns off, what is computed again is little against what it has to compute anyway.
TEST(Cache, CheckpointsBeyondTheNewestFourAreSpread) {
    constexpr int64_t kApart = 10;
    CacheConfig config = config_of(0, 16);
    config.keep_checkpoints = 12;
    Scene scene(config);
    scene.publish("a", 1);
    for (int64_t length = kApart; length <= 90 * kApart; length += kApart) {
        scene.publish("a", length, HeadKind::kCheckpoint);
        std::vector<int64_t> kept = scene.lengths("a");
        kept.erase(kept.begin());  // the turn's
        ASSERT_LE(kept.size(), 12u);
        EXPECT_EQ(kept.front(), kApart) << "the first one stays";
        if (length < 4 * kApart) continue;
        EXPECT_THAT(std::vector(kept.end() - 4, kept.end()),
                    ElementsAre(length - 3 * kApart, length - 2 * kApart, length - kApart, length));
        for (size_t i = 1; i < kept.size(); ++i) {
            const int64_t anyway = length - kept[i] + kApart;  // of a history that turns off in the message before
            EXPECT_LE(length - kept[i - 1], 3 * anyway) << kept[i - 1] << " and " << kept[i] << " of " << length;
        }
    }
    EXPECT_EQ(scene.lookup("a", 500, 500).not_reused.front().reason, NotReused::kNotRetained);
}

TEST(Cache, AttachesAtEveryLengthAndGivesEverythingBack) {
    for (int64_t length = 1; length <= 13; ++length) {
        SCOPED_TRACE(length);
        Scene scene;
        const HeadId head = scene.publish("a", length);
        const int32_t used = scene.cache.kv().pool().num_used();
        auto memory = scene.cache.attach(head);
        ASSERT_TRUE(memory);
        EXPECT_EQ(memory->num_shared_blocks, length / 4);
        EXPECT_EQ(memory->state_src, scene.cache.find(head)->state);
        EXPECT_NE(memory->state, memory->state_src);
        EXPECT_EQ(memory->copy.has_value(), length % 4 != 0);
        EXPECT_EQ(scene.cache.num_pins(head), 1);
        scene.cache.release(*memory);
        EXPECT_EQ(memory->state_src, kNoState);
        EXPECT_EQ(memory->num_shared_blocks, 0);
        EXPECT_EQ(scene.cache.num_pins(head), 0);
        EXPECT_EQ(scene.cache.kv().pool().num_used(), used);
        scene.cache.verify({});
    }
}

TEST(Cache, AnAttachWithoutRoomChangesNothing) {
    Scene no_row(config_of(16, 1));
    const HeadId a = no_row.publish("a", 6);
    EXPECT_FALSE(no_row.cache.attach(a));
    EXPECT_EQ(no_row.cache.num_pins(a), 0);
    Scene no_block(config_of(2, 4));
    const HeadId b = no_block.publish("a", 6);
    EXPECT_FALSE(no_block.cache.attach(b));
    EXPECT_EQ(no_block.cache.state().pool().num_used(), 1);
    no_block.cache.verify({});
}

TEST(Cache, FindsTheDeepestHeadThatIsStrictlyShorter) {
    Scene scene;
    const HeadId prompt = scene.publish("a", 5, HeadKind::kPrompt);
    const HeadId turn = scene.publish("a", 9);
    EXPECT_EQ(scene.lookup("a", 10).head, turn);
    EXPECT_EQ(scene.lookup("a", 9).head, prompt);
    EXPECT_EQ(scene.lookup("a", 6).head, prompt);
    EXPECT_EQ(scene.lookup("a", 5).head, kNoHead);
    EXPECT_EQ(scene.lookup("b", 10).head, kNoHead);
}

TEST(Cache, TheLongestHeadIsFoundWhicheverIsTheNewest) {
    Scene scene;
    const HeadId turn = scene.publish("a", 9);
    const HeadId checkpoint = scene.publish("a", 5, HeadKind::kCheckpoint);
    EXPECT_THAT(scene.lengths("a"), ElementsAre(9, 5));
    EXPECT_EQ(scene.lookup("a", 12).head, turn);
    EXPECT_EQ(scene.lookup("a", 8).head, checkpoint);
}

TEST(Cache, AHeadOfOtherTokensIsNotFound) {
    Scene scene;
    scene.publish("a", 9, HeadKind::kTurn, 1);
    EXPECT_EQ(scene.lookup("a", 10).head, kNoHead);
}

TEST(Cache, AHeadWhoseBlocksALaterOneHoldsIsPassedOverForBlocks) {
    Scene scene(config_of(5, 8));
    const HeadId first = scene.publish("a", 8);  // blocks 0 1
    auto memory = scene.cache.attach(first);
    ASSERT_TRUE(memory && scene.cache.grow(*memory, 16));  // shares both, two more
    const HeadId second = scene.publish_from(*memory, "b", 16);
    // `first` is the least recently used, but frees no block by itself.
    ASSERT_TRUE(scene.make_room(3, 0));
    EXPECT_NE(scene.cache.find(first), nullptr);
    EXPECT_EQ(scene.cache.find(second), nullptr);
    ASSERT_TRUE(scene.make_room(0, 8));
    EXPECT_EQ(scene.cache.find(first), nullptr);
}

// A prompt head and a turn head in one block: each alone frees nothing, together they are as old as any.
TEST(Cache, HeadsThatShareTheirLastBlockAreNotImmortal) {
    Scene scene(config_of(4, 8));
    auto memory = scene.cache.attach(kNoHead);
    ASSERT_TRUE(scene.cache.grow(*memory, 8));
    auto pending = scene.cache.snapshot(*memory, scene.store.store(iota_tokens(0, 7)));
    scene.cache.publish({Scene::key("a"), HeadKind::kPrompt, kNumerics, *std::move(pending)}, {});
    scene.publish_from(*memory, "a", 8);
    const HeadId newer = scene.publish("b", 8);
    EXPECT_EQ(scene.cache.heads().size(), 3u);
    ASSERT_TRUE(scene.make_room(2, 0));
    EXPECT_THAT(scene.lengths("a"), ElementsAre());
    EXPECT_NE(scene.cache.find(newer), nullptr);
    scene.cache.verify({});
}

TEST(Cache, AHeadThatEqualsAnOlderOneOfItsNameTakesItsPlace) {
    Scene scene;
    scene.publish("a", 5, HeadKind::kPrompt);
    const HeadId first = scene.publish("a", 9);
    const HeadId again = scene.publish("a", 9);
    EXPECT_EQ(scene.cache.find(first), nullptr);
    EXPECT_EQ(scene.lookup("a", 12).head, again);
    EXPECT_THAT(scene.lengths("a"), ElementsAre(5, 9));
    scene.publish("a", 9, HeadKind::kCheckpoint);  // counts as the turn's head that it replaces
    EXPECT_EQ(scene.cache.find(scene.lookup("a", 12).head)->kind, HeadKind::kTurn);
    scene.publish("a", 9, HeadKind::kTurn, 0, "b/1");  // other arithmetic is another head
    EXPECT_THAT(scene.lengths("a"), ElementsAre(5, 9, 9));
    scene.cache.verify({});
}

TEST(Cache, ForStateRowsUnusedSnapshotsAreEvictedBeforeTurnHeads) {
    Scene scene(config_of(16, 4));
    const HeadId turn = scene.publish("a", 4);
    const HeadId used = scene.publish("b", 4, HeadKind::kPrompt);
    const HeadId unused = scene.publish("c", 4, HeadKind::kPrompt);
    auto memory = scene.cache.attach(used);
    scene.cache.release(*memory);
    EXPECT_FALSE(scene.cache.make_room({.state_rows = 3}, {.spare_proven = true}));
    EXPECT_EQ(scene.cache.find(unused), nullptr);
    EXPECT_NE(scene.cache.find(turn), nullptr);
    ASSERT_TRUE(scene.make_room(0, 3));
    EXPECT_EQ(scene.cache.find(turn), nullptr);
    EXPECT_NE(scene.cache.find(used), nullptr);
}

TEST(Cache, AHeadThatAWaitingRequestNeedsIsEvictedLast) {
    Scene scene(config_of(8, 8));
    const HeadId expected = scene.publish("a", 8);
    const HeadId newer = scene.publish("b", 8);
    scene.cache.expect(expected);
    EXPECT_FALSE(scene.cache.make_room({.kv_blocks = 8}, {}));
    EXPECT_EQ(scene.cache.find(newer), nullptr);
    EXPECT_NE(scene.cache.find(expected), nullptr);
    scene.cache.unexpect(expected);
    EXPECT_TRUE(scene.cache.make_room({.kv_blocks = 8}, {}));
    scene.cache.unexpect(expected);  // what is gone is not missed
}

TEST(Cache, TheHeadThatIsToBeAttachedStays) {
    Scene scene(config_of(4, 8));
    const HeadId wanted = scene.publish("a", 8);
    const HeadId newer = scene.publish("b", 8);
    EXPECT_TRUE(scene.cache.make_room({.kv_blocks = 2}, {.except = wanted}));
    EXPECT_EQ(scene.cache.find(newer), nullptr);
    EXPECT_FALSE(scene.cache.make_room({.kv_blocks = 3}, {.except = wanted}));
    EXPECT_NE(scene.cache.find(wanted), nullptr);
}

// Without state rows heads that share all their blocks cost nothing, and would be as many as there ever were.
TEST(Cache, ThereAreNoMoreHeadsThanUnitsOfMemory) {
    CacheConfig config = config_of(8, 0);
    config.lookup = LookupMode::kPrefix;
    config.keep_turn_heads = 100;
    Scene scene(config);
    auto memory = scene.cache.attach(kNoHead);
    ASSERT_TRUE(scene.cache.grow(*memory, 32));
    for (int64_t length = 1; length <= 32; ++length) {
        auto pending = scene.cache.snapshot(*memory, scene.store.store(iota_tokens(0, length)));
        scene.cache.publish({Scene::key("a"), HeadKind::kTurn, kNumerics, *std::move(pending)}, {});
    }
    EXPECT_EQ(scene.cache.heads().size(), 8u);
    EXPECT_EQ(scene.lookup("a", 40).length, 32);
    scene.cache.release(*memory);
    scene.cache.verify({});
}

TEST(Cache, APinnedHeadIsNotEvicted) {
    Scene scene;
    const HeadId head = scene.publish("a", 6);
    auto memory = scene.cache.attach(head);
    EXPECT_FALSE(scene.make_room(15, 0));
    ASSERT_NE(scene.cache.find(head), nullptr);
    scene.cache.unpin(*memory);
    EXPECT_FALSE(scene.make_room(16, 0));  // the sequence's own blocks stay
    EXPECT_EQ(scene.cache.find(head), nullptr);
    scene.cache.release(*memory);
    EXPECT_EQ(scene.cache.kv().pool().num_free(), 16);
}

TEST(Cache, AttachingMakesAHeadTheMostRecentlyUsed) {
    Scene scene(config_of(4, 8));
    const HeadId old = scene.publish("a", 4);
    const HeadId newer = scene.publish("b", 4);
    auto memory = scene.cache.attach(old);
    scene.cache.release(*memory);
    ASSERT_TRUE(scene.make_room(3, 0));
    EXPECT_NE(scene.cache.find(old), nullptr);
    EXPECT_EQ(scene.cache.find(newer), nullptr);
}

TEST(Cache, RoomForAModelWithoutStateAsksForNoRow) {
    Scene scene(config_of(4, 0));
    const HeadId head = scene.publish("a", 4);
    EXPECT_TRUE(scene.make_room(1, 1));
    EXPECT_NE(scene.cache.find(head), nullptr);
}

TEST(Cache, RoomForAModelWithoutAttentionAsksForNoBlock) {
    Scene scene(config_of(0, 3));
    const HeadId head = scene.publish("a", 4);
    EXPECT_TRUE(scene.make_room(1, 1));
    EXPECT_NE(scene.cache.find(head), nullptr);
}

TEST(Cache, ANameKeepsItsTwoNewestTurnHeadsAndOnePromptHead) {
    Scene scene;
    for (int64_t turn = 1; turn <= 3; ++turn) {
        scene.publish("a", 4 * turn - 1, HeadKind::kPrompt);
        scene.publish("a", 4 * turn);
    }
    EXPECT_THAT(scene.lengths("a"), ElementsAre(8, 11, 12));
    EXPECT_EQ(scene.lookup("a", 6, 6).not_reused.front(), range(4, NotReused::kNotRetained));
}

TEST(Cache, AnAttachedUnlistedHeadLivesUntilItIsUnpinned) {
    Scene scene;
    const HeadId head = scene.publish("a", 6);
    auto memory = scene.cache.attach(head);
    scene.cache.remove(Scene::key("a"));
    ASSERT_NE(scene.cache.find(head), nullptr);
    EXPECT_EQ(scene.lookup("a", 10).head, kNoHead);
    scene.cache.release(*memory);
    EXPECT_EQ(scene.cache.find(head), nullptr);
    EXPECT_EQ(scene.cache.kv().pool().num_free(), 16);
}

TEST(Cache, AForkListsTheSameHeadsAndOutlivesItsOrigin) {
    Scene scene;
    const HeadId head = scene.publish("a", 6);
    scene.cache.fork(Scene::key("a"), Scene::key("b"));
    scene.cache.remove(Scene::key("a"));
    EXPECT_EQ(scene.lookup("b", 7).head, head);
    scene.cache.verify({});
    scene.cache.remove(Scene::key("b"));
    EXPECT_TRUE(scene.cache.heads().empty());
}

TEST(Cache, RewindTakesLongerHeadsOffTheName) {
    Scene scene;
    const HeadId first = scene.publish("a", 4);
    scene.publish("a", 8);
    scene.cache.rewind(Scene::key("a"), 5);
    EXPECT_EQ(scene.lookup("a", 9).head, first);
    EXPECT_EQ(scene.cache.heads().size(), 1u);
}

TEST(Cache, ACommitTakesHeadsOfAnAbandonedHistoryOffTheName) {
    Scene scene;
    scene.publish("a", 4);
    scene.publish("a", 9, HeadKind::kCheckpoint, 100);  // other tokens: an edit that was given up
    scene.publish("a", 8);
    EXPECT_THAT(scene.lengths("a"), ElementsAre(4, 8));
}

TEST(Cache, ASnapshotSharesBlocksAndHasASeparateRow) {
    Scene scene;
    auto memory = scene.cache.attach(kNoHead);
    ASSERT_TRUE(scene.cache.grow(*memory, 10));
    auto pending = scene.cache.snapshot(*memory, scene.store.store(iota_tokens(0, 6)));
    ASSERT_TRUE(pending);
    EXPECT_EQ(pending->blocks, (BlockTable{memory->blocks.segment, 2}));
    EXPECT_NE(pending->state, memory->state);
    EXPECT_EQ(scene.lookup("a", 10).head, kNoHead);  // pending is not published
    scene.cache.discard(*pending, kNoStep);
    EXPECT_TRUE(pending->tokens.empty());
    scene.cache.release(*memory);
    EXPECT_EQ(scene.cache.kv().pool().num_free(), 16);
    EXPECT_EQ(scene.cache.state().pool().num_free(), 8);
}

TEST(Cache, EveryTokenThatIsNotReusedHasAReason) {
    Scene scene;
    EXPECT_THAT(scene.lookup("a", 5).not_reused, ElementsAre(range(5, NotReused::kNewConversation)));
    scene.publish("a", 6);
    EXPECT_THAT(scene.lookup("a", 10, 7, 6).not_reused,
                ElementsAre(range(7, NotReused::kSeam), range(10, NotReused::kNewTokens)));
    EXPECT_THAT(
        scene.lookup("a", 10, 10, 8).not_reused,
        ElementsAre(range(8, NotReused::kBetweenHeads), range(9, NotReused::kSeam), range(10, NotReused::kLastToken)));
    EXPECT_THAT(scene.lookup("a", 10, 7, 6, false).not_reused, ElementsAre(range(10, NotReused::kCacheOff)));
}

TEST(Cache, AnEvictedHeadIsTheReasonBelowItsLength) {
    Scene scene;
    scene.publish("a", 6);
    ASSERT_TRUE(scene.make_room(16, 0));
    EXPECT_THAT(
        scene.lookup("a", 10, 7, 6).not_reused,
        ElementsAre(range(6, NotReused::kEvicted), range(7, NotReused::kSeam), range(10, NotReused::kNewTokens)));
}

TEST(Cache, AHeadOfOtherArithmeticIsTheReasonBelowItsLength) {
    Scene scene;
    const HeadId own = scene.publish("a", 4);
    scene.publish("a", 8, HeadKind::kTurn, 0, "b/1");
    const LookupResult found = scene.lookup("a", 10, 9, 8);
    EXPECT_EQ(found.head, own);
    EXPECT_EQ(found.not_reused.front(), range(8, NotReused::kOtherNumerics));
}

TEST(Cache, OfHeadsThatWereMissedTheLongestIsTheReason) {
    Scene scene;
    scene.publish("a", 8);
    ASSERT_TRUE(scene.make_room(16, 0));
    scene.publish("a", 6, HeadKind::kPrompt, 0, "b/1");
    scene.publish("a", 8, HeadKind::kCheckpoint, 0, "b/1");
    EXPECT_EQ(scene.lookup("a", 10, 9, 8).not_reused.front(), range(8, NotReused::kEvicted));
}

TEST(Cache, AConversationPrefersItsHeadToANewerOneOfTheSameTokens) {
    CacheConfig config = config_of(16, 8);
    config.lookup = LookupMode::kPrefix;
    Scene scene(config);
    const HeadId older = scene.publish("a", 6);
    const HeadId newer = scene.publish("b", 6);
    EXPECT_EQ(scene.lookup("a", 8).head, older);
    EXPECT_EQ(scene.lookup("b", 8).head, newer);
    EXPECT_EQ(scene.lookup("c", 8).head, newer);
}

TEST(Cache, PrefixLookupFindsAHeadOfAnotherConversationOfTheSameSalt) {
    CacheConfig config = config_of(16, 8);
    config.lookup = LookupMode::kPrefix;
    Scene scene(config);
    const HeadId head = scene.publish("a", 6);
    EXPECT_EQ(scene.lookup("b", 8).head, head);
    const ConversationKey salted = Scene::key("b", "s");
    const TokenSeq tokens = scene.store.store(iota_tokens(0, 8));
    EXPECT_EQ(scene.cache.lookup({.key = salted, .tokens = tokens, .seam = {}, .numerics_id = kNumerics}).head,
              kNoHead);
    scene.cache.remove(Scene::key("a"));
    EXPECT_EQ(scene.lookup("b", 8).head, kNoHead);
}

TEST(Cache, DeletingAConversationAlsoDropsItsUnlistedHeads) {
    CacheConfig config = config_of(32, 16);
    config.lookup = LookupMode::kPrefix;
    Scene scene(config);
    for (const int64_t length : {4, 8, 12, 16}) scene.publish("a", length);
    EXPECT_THAT(scene.lengths("a"), ElementsAre(12, 16));
    EXPECT_EQ(scene.lookup("b", 6).length, 4);  // let go by the name, found by its tokens
    scene.cache.verify({});
    scene.cache.fork(Scene::key("a"), Scene::key("c"));
    scene.cache.remove(Scene::key("a"));
    EXPECT_EQ(scene.lookup("b", 6).length, 4);  // the fork's, too
    scene.cache.verify({});
    scene.cache.remove(Scene::key("c"));
    EXPECT_EQ(scene.lookup("b", 6).head, kNoHead);
    EXPECT_TRUE(scene.cache.heads().empty());
    scene.cache.verify({});
}

TEST(Cache, AnUnlistedHeadIsEvictedLikeAnyOther) {
    CacheConfig config = config_of(32, 16);
    config.lookup = LookupMode::kPrefix;
    Scene scene(config);
    for (const int64_t length : {4, 8, 12}) scene.publish("a", length);
    ASSERT_TRUE(scene.make_room(32, 0));
    EXPECT_TRUE(scene.cache.heads().empty());
    EXPECT_TRUE(scene.cache.find(Scene::key("a"))->former.empty());
    scene.cache.verify({});
}

TEST(Cache, ANameThatNeverCommittedGoesWithItsLastHead) {
    Scene scene;
    scene.publish("a", 6, HeadKind::kPrompt);
    ASSERT_NE(scene.cache.find(Scene::key("a")), nullptr);
    ASSERT_TRUE(scene.make_room(16, 0));
    EXPECT_EQ(scene.cache.find(Scene::key("a")), nullptr);
    scene.publish("b", 6);
    ASSERT_TRUE(scene.make_room(16, 0));
    EXPECT_NE(scene.cache.find(Scene::key("b")), nullptr);
}

TEST(Cache, OnlyARequestThatIsNotDeterministicAttachesToOtherArithmetic) {
    for (const LookupMode mode : {LookupMode::kConversation, LookupMode::kPrefix}) {
        CacheConfig config = config_of(16, 8);
        config.lookup = mode;
        Scene scene(config);
        const HeadId other = scene.publish("a", 8, HeadKind::kTurn, 0, "b/1");
        const ConversationKey key = Scene::key("a");
        const TokenSeq tokens = scene.store.store(iota_tokens(0, 10));
        LookupQuery query{.key = key, .tokens = tokens, .num_committed = 9, .seam = 8, .numerics_id = kNumerics};
        EXPECT_EQ(scene.cache.lookup(query).head, kNoHead);
        query.deterministic = false;
        EXPECT_EQ(scene.cache.lookup(query).head, other);
        const HeadId newer = scene.publish("a", 8, HeadKind::kCheckpoint);
        EXPECT_EQ(scene.cache.lookup(query).head, newer) << "of two of one length";
        EXPECT_THAT(scene.cache.lookup(query).not_reused,
                    ElementsAre(range(9, NotReused::kSeam), range(10, NotReused::kNewTokens)));
    }
}

// --- blocks, as other engines find them

CacheConfig blocks_config(int32_t num_rows) {
    CacheConfig config = config_of(16, num_rows);
    config.lookup = LookupMode::kBlocks;
    config.keep_turn_heads = num_rows > 0 ? 0 : 1;
    return config;
}

TEST(Cache, WithoutStateFullBlocksOfAnyPrefixAreFound) {
    Scene scene(blocks_config(0));
    const HeadId head = scene.publish("a", 10);
    for (const auto& [size, reused] : {std::pair{3, 0}, {4, 0}, {5, 4}, {9, 8}, {10, 8}, {30, 8}}) {
        SCOPED_TRACE(size);
        const LookupResult found = scene.lookup("b", size);
        EXPECT_EQ(found.length, reused);
        EXPECT_EQ(found.head, reused > 0 ? head : kNoHead);
    }
    auto memory = scene.cache.attach(head, 4);
    ASSERT_TRUE(memory);
    EXPECT_EQ(memory->num_shared_blocks, 1);
    EXPECT_FALSE(memory->copy) << "a full block has no tail";
    scene.cache.release(*memory);
    scene.cache.verify({});
}

TEST(Cache, ABlockOfOneTokenIsFound) {
    CacheConfig config = blocks_config(0);
    config.pools.block_size = 1;
    Scene scene(config);
    const HeadId head = scene.publish("a", 3);
    EXPECT_EQ(scene.lookup("b", 2).head, head);
    EXPECT_EQ(scene.lookup("b", 2).length, 1);
}

TEST(Cache, WithoutStateAUseOfAPartOfAHeadIsAUse) {
    Scene scene(blocks_config(0));
    const HeadId used = scene.publish("a", 8);
    const HeadId newer = scene.publish("b", 8, HeadKind::kTurn, 100);
    auto memory = scene.cache.attach(used, 4);
    scene.cache.release(*memory);
    ASSERT_TRUE(scene.make_room(14, 0));
    EXPECT_NE(scene.cache.find(used), nullptr);
    EXPECT_EQ(scene.cache.find(newer), nullptr);
}

TEST(Cache, WithStateATurnsEndIsNotFoundByBlocks) {
    Scene scene(blocks_config(4));
    scene.publish("a", 8);
    EXPECT_EQ(scene.lookup("a", 20).head, kNoHead);
    EXPECT_EQ(scene.cache.state().pool().num_used(), 0) << "and keeps nothing";
    const HeadId checkpoint = scene.publish("a", 8, HeadKind::kCheckpoint);
    EXPECT_EQ(scene.lookup("b", 9).head, checkpoint);
    EXPECT_EQ(scene.lookup("b", 8).head, kNoHead) << "one token is left to compute";
    scene.cache.verify({});
}

TEST(Cache, APromptsStateIsKeptABlockBeforeItsEnd) {
    for (const auto& [tokens, kept] : {std::pair{1, 0},
                                       {528, 0},
                                       {529, 0},
                                       {1056, 0},
                                       {1057, 528},
                                       {1584, 528},
                                       {1585, 1056},
                                       {10'000, 9504 - 528}}) {
        EXPECT_EQ(kept_block_prefix(tokens, 528), kept) << tokens;
    }
}

}  // namespace
}  // namespace verbatim
