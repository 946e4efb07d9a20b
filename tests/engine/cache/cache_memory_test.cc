// What a cache may be made of, what its units and heads weigh, and how many of them there are at most.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/cache/cache.h"

namespace verbatim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Blocks of 4 tokens and 4 bytes, rows of 40 bytes.
CacheConfig weighed_config(int32_t num_blocks, int32_t num_rows, int64_t budget_bytes = 0) {
    CacheConfig config;
    config.has_kv = num_blocks > 0;
    config.has_state = num_rows > 0;
    config.pools = {.block_size = 4, .num_blocks = num_blocks, .num_state_rows = num_rows};
    config.budget_bytes = budget_bytes;
    config.kv_block_bytes = 4;
    config.state_row_bytes = 40;
    return config;
}

struct MemoryScene {
    explicit MemoryScene(const CacheConfig& config) : cache(config, policy) {}
    HeadId publish(uint64_t space, int64_t length) {
        auto pending = cache.make_pending({}, store.derive(space, 0, length), "a/1");
        EXPECT_TRUE(pending);
        return cache.publish({{{}, std::to_string(space)}, HeadKind::kTurn, "a/1", *std::move(pending)}, {});
    }
    TokenStore store{1000};
    LruEviction policy;
    Cache cache;
};

TEST(CacheConfig, WithoutMemoryItIsRefused) {
    CacheConfig config = weighed_config(16, 8);
    EXPECT_TRUE(validate(config));
    config.pools = {.block_size = 0, .num_blocks = 0, .num_state_rows = 0};
    EXPECT_THAT(
        problems_of(config),
        ElementsAre("block_size: 0 is not >= 1", "num_blocks: 0 is not >= 1: the KV budget is less than one block",
                    "num_state_rows: 0 is not >= 1: the state budget is less than one row"));
    EXPECT_FALSE(validate(config));
}

TEST(CacheConfig, NoNumberIsNegative) {
    CacheConfig config = weighed_config(16, 8);
    config.budget_bytes = config.kv_block_bytes = config.state_row_bytes = -1;
    config.operations_per_token = config.operations_per_pair = -1;
    config.history_boundaries = -1;
    EXPECT_THAT(problems_of(config),
                ElementsAre("budget_bytes: -1 is not >= 0", "kv_block_bytes: -1 is not >= 0",
                            "state_row_bytes: -1 is not >= 0", "operations_per_token: -1 is not >= 0",
                            "operations_per_pair: -1 is not >= 0", "history_boundaries: -1 is not >= 0"));
}

TEST(CacheConfig, ABudgetHoldsABlockAndARowOfWhatTheModelHas) {
    EXPECT_THAT(problems_of(weighed_config(16, 8, 44)), IsEmpty());
    EXPECT_THAT(problems_of(weighed_config(16, 8, 43)),
                ElementsAre("budget_bytes: 43 is less than a block of 4 and a state row of 40"));
    EXPECT_THAT(problems_of(weighed_config(16, 0, 4)), IsEmpty());
    EXPECT_THAT(problems_of(weighed_config(16, 0, 3)), ::testing::SizeIs(1));
    EXPECT_THAT(problems_of(weighed_config(0, 8, 40)), IsEmpty());
    EXPECT_THAT(problems_of(weighed_config(0, 8, 39)), ::testing::SizeIs(1));
    EXPECT_THAT(problems_of(weighed_config(16, 8, 1)), ::testing::SizeIs(1)) << "one byte is a budget";
    EXPECT_THAT(problems_of(weighed_config(16, 8, 0)), IsEmpty()) << "none is no limit";
}

TEST(CacheConfig, ACacheLearnsThatFindsTokensAndKnowsABoundary) {
    CacheConfig config = weighed_config(16, 8);
    config.lookup = LookupMode::kPrefix;
    EXPECT_FALSE(learns(config));
    config.history_boundaries = 1;
    EXPECT_TRUE(learns(config));
    config.lookup = LookupMode::kConversation;
    EXPECT_FALSE(learns(config));
}

// 20 tokens, of which the mean one has 20 positions before it.
TEST(HeadValue, IsTheOperationsBehindTheShorterHeadAndItsPartOfTheBytes) {
    CacheConfig config = weighed_config(16, 8);
    config.operations_per_token = 100;
    config.operations_per_pair = 3;
    const KvGroup::Exclusive exclusive{.num_blocks = 6, .num_heads = 2};
    EXPECT_EQ(head_value(config, 10, 30, exclusive), (HeadValue{.operations = 20 * (100 + 3 * 20), .bytes = 40 + 12}));
    config.has_state = false;
    EXPECT_EQ(head_value(config, 0, 5, exclusive), (HeadValue{.operations = 5 * (100 + 3 * 2), .bytes = 12}));
}

TEST(CacheMemory, BytesAreThoseOfThePoolsOrOfTheBudgetThatIsLess) {
    for (const auto& [budget, free] : {std::pair{0, 144}, {100, 100}, {1000, 144}}) {
        MemoryScene scene(weighed_config(16, 2, budget));
        EXPECT_EQ(scene.cache.bytes_by_kind().free, free);
        const HeadId head = scene.publish(1, 9);
        auto memory = scene.cache.attach(head);
        ASSERT_TRUE(memory);
        const Cache::BytesByKind bytes = scene.cache.bytes_by_kind();
        EXPECT_EQ(bytes.kv_of_sequences, 12) << "two shared blocks, and its tail";
        EXPECT_EQ(bytes.kv_of_heads, 4);
        EXPECT_EQ(bytes.states, 80);
        EXPECT_EQ(bytes.free, free - 96);
        scene.cache.release(*memory);
    }
    EXPECT_EQ(MemoryScene(weighed_config(16, 0)).cache.bytes_by_kind().free, 64);
    EXPECT_EQ(MemoryScene(weighed_config(0, 2)).cache.bytes_by_kind().free, 80);
}

TEST(CacheMemory, BlocksThatRowsLeaveRoomForAreThoseOfTheBytesThatAreLeft) {
    const auto affordable = [](const CacheConfig& config, int32_t num_rows) {
        return MemoryScene(config).cache.num_affordable_blocks(num_rows);
    };
    const CacheConfig config = weighed_config(50, 8, 100);
    EXPECT_EQ(affordable(config, 0), 25);
    EXPECT_EQ(affordable(config, 2), 5);
    EXPECT_EQ(affordable(config, 3), 0);
    EXPECT_EQ(affordable(weighed_config(10, 8, 100), 0), 10) << "no more than the pool has";
    EXPECT_EQ(affordable(weighed_config(0, 8, 100), 1), 0);
    CacheConfig bytes = weighed_config(50, 200, 100);
    bytes.kv_block_bytes = bytes.state_row_bytes = 1;
    EXPECT_EQ(affordable(bytes, 80), 20);
    EXPECT_EQ(affordable(bytes, 101), 0);
    CacheConfig weightless = weighed_config(50, 200, 100);
    weightless.kv_block_bytes = 0;
    weightless.state_row_bytes = 1;
    EXPECT_EQ(affordable(weightless, 100), 50);
}

// What the model does not have weighs nothing, whatever a unit of it would.
TEST(CacheMemory, RoomIsMadeForTheBytesOfWhatTheModelHas) {
    MemoryScene rows(weighed_config(0, 3, 118));
    const HeadId older = rows.publish(1, 8);
    rows.publish(2, 8);
    EXPECT_TRUE(rows.cache.make_room({.kv_blocks = 5, .state_rows = 1}, {}));
    EXPECT_EQ(rows.cache.find(older), nullptr) << "38 bytes are too few for a row";
    MemoryScene blocks(weighed_config(16, 0, 15));
    const HeadId head = blocks.publish(1, 12);
    EXPECT_TRUE(blocks.cache.make_room({.kv_blocks = 1, .state_rows = 5}, {}));
    EXPECT_EQ(blocks.cache.find(head), nullptr) << "3 bytes are too few for a block";
}

TEST(CacheMemory, AHeadThatFreesNothingStaysWhereThereAreNoRows) {
    MemoryScene scene(weighed_config(16, 0, 16));
    const HeadId head = scene.publish(1, 4);
    auto memory = scene.cache.attach(head);
    ASSERT_TRUE(memory);
    scene.cache.unpin(*memory);
    EXPECT_FALSE(scene.cache.make_room({.kv_blocks = 4}, {}));
    EXPECT_NE(scene.cache.find(head), nullptr);
    scene.cache.release(*memory);
}

TEST(CacheMemory, ASequenceFromZeroHoldsNoSegment) {
    MemoryScene scene(weighed_config(16, 8));
    auto memory = scene.cache.attach(kNoHead);
    ASSERT_TRUE(memory);
    EXPECT_EQ(memory->blocks, BlockTable{});
    EXPECT_EQ(scene.cache.kv().num_segments(), 0u);
    scene.cache.release(*memory);
}

TEST(CacheMemory, AModelWithoutMemoryHas1024HeadsAtMost) {
    MemoryScene scene(weighed_config(0, 0));
    for (uint64_t i = 0; i < 1030; ++i) scene.publish(i, 1);
    EXPECT_EQ(scene.cache.num_heads(), 1024u);
    EXPECT_EQ(scene.cache.find(HeadId{5}), nullptr) << "the oldest ones are gone";
    EXPECT_NE(scene.cache.find(HeadId{6}), nullptr);
}

// Where a block is all there is, there is one head; and a request that waits for it does not keep it.
TEST(CacheMemory, OneUnitOfMemoryIsOneHeadWhateverIsExpected) {
    CacheConfig config = weighed_config(1, 0);
    config.keep_turn_heads = 8;
    MemoryScene scene(config);
    auto memory = scene.cache.attach(kNoHead);
    ASSERT_TRUE(memory && scene.cache.grow(*memory, 4));
    for (int64_t length = 1; length <= 3; ++length) {
        auto pending = scene.cache.snapshot(*memory, scene.store.derive(1, 0, length));
        const HeadId head = scene.cache.publish({{{}, "a"}, HeadKind::kTurn, "a/1", *std::move(pending)}, {});
        EXPECT_EQ(scene.cache.num_heads(), 1u);
        EXPECT_NE(scene.cache.find(head), nullptr) << "the newest";
        scene.cache.expect(head);
    }
    scene.cache.release(*memory);
}

TEST(CacheMemory, PinnedHeadsAreListedLastInTheOrderOfTheirPublication) {
    MemoryScene scene(weighed_config(16, 16));
    for (uint64_t i = 0; i < 3; ++i) scene.publish(i, 4);
    scene.cache.remove({{}, "0"});
    scene.publish(3, 4);  // where the first one was
    const HeadId unpinned = scene.publish(4, 4);
    std::vector<SequenceMemory> memories;
    for (const int64_t head : {3, 2, 1}) memories.push_back(*scene.cache.attach(HeadId{head}));
    std::vector<HeadId> listed;
    for (const Head* head : scene.cache.heads()) listed.push_back(head->id);
    EXPECT_THAT(listed, ElementsAre(unpinned, HeadId{1}, HeadId{2}, HeadId{3}));
    for (SequenceMemory& memory : memories) scene.cache.release(memory);
}

TEST(CacheMemory, SaltsAndArithmeticsGoWithTheirLastHead) {
    MemoryScene scene(weighed_config(16, 8));
    const CacheSalt salt{"s"};
    auto pending = scene.cache.make_pending(salt, scene.store.derive(1, 0, 4), "b/1");
    ASSERT_TRUE(pending);
    scene.cache.publish({{salt, "a"}, HeadKind::kTurn, "b/1", *std::move(pending)}, {});
    scene.cache.verify({});
    scene.cache.remove({salt, "a"});
    scene.cache.verify({});
    EXPECT_EQ(scene.cache.num_heads(), 0u);
}

}  // namespace
}  // namespace verbatim
