// The scores of routers, by arithmetic.
#include "simulator/routes.h"

#include <gtest/gtest.h>

#include <vector>

namespace verbatim::tests {
namespace {

TEST(Routes, LlmDsScoreIsTheWeightedSumOfItsDefaultProfile) {
    const ReplicaLoad load{.num_waiting = 3, .kv_usage = 0.25, .matched_tokens = 600};
    // 2 · (7 - 3) / (7 - 1) + 2 · 0.75 + 3 · 600 / 1000
    EXPECT_DOUBLE_EQ(llm_d_score(load, 1, 7, 1000), 2 * 4.0 / 6 + 1.5 + 1.8);
    EXPECT_DOUBLE_EQ(llm_d_score(load, 3, 3, 1000), 2 + 1.5 + 1.8) << "all queues are equal";
    EXPECT_DOUBLE_EQ(llm_d_score(load, 3, 3, 0), 2 + 1.5) << "no prompt is known";
    EXPECT_DOUBLE_EQ(llm_d_score({.kv_usage = 1.5}, 0, 0, 10), 2) << "shared blocks count more than once";
}

TEST(Routes, DynamosCostIsPrefillBlocksAndDecodeBlocks) {
    const ReplicaLoad load{.matched_tokens = 128, .prefill_tokens = 320, .decode_blocks = 40};
    EXPECT_DOUBLE_EQ(dynamo_cost(load, 1000, 16), (320 + 1000 - 128) / 16.0 + 40);
}

TEST(Routes, TheBestReplicaIsChosenAndOfEqualOnesTheOneWithTheFewestRequests) {
    std::vector<ReplicaLoad> loads(3);
    EXPECT_EQ(choose_replica(Route::kLeastLoaded, loads, 0, 16), 0u);
    loads[0].num_requests = 2;
    loads[1].num_requests = loads[2].num_requests = 1;
    for (const Route route : {Route::kLeastLoaded, Route::kPrefixAware, Route::kPrefixAwareDynamo})
        EXPECT_EQ(choose_replica(route, loads, 1000, 16), 1u);
    loads[0].matched_tokens = 500;
    EXPECT_EQ(choose_replica(Route::kLeastLoaded, loads, 1000, 16), 1u);
    EXPECT_EQ(choose_replica(Route::kPrefixAware, loads, 1000, 16), 0u);
    EXPECT_EQ(choose_replica(Route::kPrefixAwareDynamo, loads, 1000, 16), 0u);
    // llm-d: 1.5 more for the half that is matched, 2 less for the longest queue.
    loads[0].num_waiting = 5;
    EXPECT_EQ(choose_replica(Route::kPrefixAware, loads, 1000, 16), 1u);
    // Dynamo: 31.25 blocks are matched, 32 are decoded.
    loads[0].decode_blocks = 32;
    EXPECT_EQ(choose_replica(Route::kPrefixAwareDynamo, loads, 1000, 16), 1u);
    loads[0].decode_blocks = 31;
    EXPECT_EQ(choose_replica(Route::kPrefixAwareDynamo, loads, 1000, 16), 0u);
}

}  // namespace
}  // namespace verbatim::tests
