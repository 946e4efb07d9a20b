#include "server/room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine/engine.h"
#include "tests/support/hash_executor.h"
#include "tests/support/null_executor.h"

namespace verbatim::tests {
namespace {

using server::room_lines;
using server::served_length;
using testing::ElementsAre;
using testing::HasSubstr;

CacheConfig cache_of(int32_t num_blocks, int32_t num_state_rows) {
    CacheConfig cache;
    cache.pools = {.block_size = 16, .num_blocks = num_blocks, .num_state_rows = num_state_rows};
    cache.has_kv = num_blocks > 0;
    cache.has_state = num_state_rows > 0;
    return cache;
}

// The engine takes a request of the served length, and none that is longer.
TEST(Room, ARequestOfTheServedLengthFitsTheEmptyCache) {
    for (const int32_t num_blocks : {2, 3, 9}) {
        EngineConfig config;
        config.cache = cache_of(num_blocks, 4);
        const int64_t length = served_length(config.cache, 100'000);
        EXPECT_EQ(length, (num_blocks - 1) * 16);
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
            const auto accepted = engine.submit(std::move(request));
            EXPECT_EQ(accepted.has_value(), more == 0) << num_blocks;
        }
        while (!engine.idle()) ASSERT_TRUE(engine.step().has_value());
        EXPECT_THAT(executor.violations(), testing::IsEmpty());
        EXPECT_EQ(engine.stats().commits, 1);
    }
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
