#include "server/room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "tests/support/hash_executor.h"
#include "tests/support/null_executor.h"

namespace verbatim::tests {
namespace {

using server::room_lines;
using server::served_length;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

CacheConfig cache_of(int32_t num_blocks, int32_t num_state_rows) {
    CacheConfig cache;
    cache.pools = {.block_size = 16, .num_blocks = num_blocks, .num_state_rows = num_state_rows};
    cache.has_kv = num_blocks > 0;
    cache.has_state = num_state_rows > 0;
    return cache;
}

// The engine takes a request of `length` tokens, and none that is longer.
void expect_longest(const CacheConfig& cache, int64_t length) {
    EngineConfig config;
    config.cache = cache;
    config.max_model_len = 100'000;
    HashExecutor executor({.pools = config.cache.pools});
    TokenStore store(1000);
    LruEviction policy;
    NullRecorder recorder;
    Engine engine(config, executor, policy, store, recorder);
    for (const int64_t more : {1, 0}) {
        ChatRequest request;
        request.conversation.conversation_id = "c";
        request.messages = {{store.store(std::vector<TokenId>(7, 5))}};
        request.max_tokens = length - 7 + more;
        EXPECT_EQ(engine.submit(std::move(request)).has_value(), more == 0) << length;
    }
    while (!engine.idle()) ASSERT_TRUE(engine.step().has_value());
    EXPECT_THAT(executor.violations(), testing::IsEmpty());
    EXPECT_EQ(engine.stats().commits, 1);
}

TEST(Room, ARequestOfTheServedLengthFitsTheEmptyCache) {
    for (const int32_t num_blocks : {2, 3, 9}) {
        const CacheConfig cache = cache_of(num_blocks, 4);
        EXPECT_EQ(served_length(cache, 100'000), (num_blocks - 1) * 16);
        expect_longest(cache, (num_blocks - 1) * 16);
    }
}

TEST(Room, UnderOneBudgetARequestHasWhatItsStateRowLeaves) {
    CacheConfig cache = cache_of(40, 4);
    cache.budget_bytes = 400;
    cache.kv_block_bytes = 10;
    cache.state_row_bytes = 100;
    EXPECT_EQ(served_length(cache, 100'000), (30 - 1) * 16);
    expect_longest(cache, (30 - 1) * 16);
    EXPECT_THAT(room_lines(cache, 100),
                ElementsAre("the cache holds 40 KV blocks (640 tokens) or 4 states, or any mix of as many bytes"));
    cache.budget_bytes = 200;  // a second row would leave no block
    EXPECT_THAT(room_lines(cache, 100), Contains(HasSubstr("nothing can be reused")));
}

TEST(Room, TheModelsPositionsAndAModelWithoutKvBoundToo) {
    EXPECT_EQ(served_length(cache_of(9, 4), 100), 100);
    EXPECT_EQ(served_length(cache_of(1, 4), 100), 0);
    EXPECT_EQ(served_length(cache_of(0, 4), 100'000), 100'000);
}

TEST(Room, AStartSaysWhatTheCacheHolds) {
    EXPECT_THAT(room_lines(cache_of(9, 4), 100), ElementsAre("the cache holds 9 KV blocks (144 tokens), 4 states"));
    EXPECT_THAT(room_lines(cache_of(9, 1), 1000),
                ElementsAre("the cache holds 9 KV blocks (144 tokens), 1 states",
                            HasSubstr("a request has 128 tokens at most, the model takes 1000"),
                            HasSubstr("nothing can be reused")));
    EXPECT_THAT(room_lines(cache_of(0, 4), 100), ElementsAre("the cache holds 4 states"));
    EXPECT_THAT(room_lines(cache_of(9, 0), 100), ElementsAre("the cache holds 9 KV blocks (144 tokens)"));
}

}  // namespace
}  // namespace verbatim::tests
