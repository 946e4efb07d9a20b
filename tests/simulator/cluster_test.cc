// Replicas under one clock: requests go where the route says when they arrive, prompts are computed apart from answers,
// and replicas come and go, at the times that follow by hand.
#include "simulator/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "simulator/eviction_policies.h"
#include "simulator/step_cost.h"
#include "tests/support/trace_run.h"
#include "traces/builder.h"

namespace verbatim::tests {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using traces::Row;
using traces::RowIndex;

constexpr int64_t kUs = 1000;
constexpr int64_t kMs = 1000 * kUs;

// A step takes so long, and so long for each of its tokens.
class PlainCost final : public CostModel {
public:
    PlainCost(double step_ns, double token_ns) : step_ns_(step_ns), token_ns_(token_ns) {}
    Price price(const StepWork& work) override {
        Price price;
        if (work.num_tokens > 0)
            price.add({step_ns_ + token_ns_ * static_cast<double>(work.num_tokens), PriceSource::kMeasured});
        return price;
    }

private:
    double step_ns_;
    double token_ns_;
};

std::unique_ptr<EvictionPolicy> lru() {
    return make_eviction_policy(EvictionChoice::kLru, {.kv_bytes_per_token = 4096, .flops_per_token = 1e9});
}

SimulationConfig replica_config(LookupMode lookup = LookupMode::kConversation) {
    SimulationConfig config;
    config.engine.cache.pools.num_blocks = 20'000;
    config.engine.cache.pools.num_state_rows = 60;
    config.engine.cache.lookup = lookup;
    config.engine.scheduler.step_tokens = 8192;
    config.engine.max_model_len = 131072;
    return config;
}

// Rows made by hand.
class Rows {
public:
    RowIndex add(const std::string& conversation, int64_t arrival_ns, int32_t own_tokens, int64_t answer_tokens,
                 int32_t replica = -1) {
        return add(conversation, arrival_ns, own_tokens, answer_tokens, traces::kNoRow, replica);
    }
    // Takes all of `from`, whose answer it waits for.
    RowIndex follow(RowIndex from, const std::string& conversation, int64_t arrival_ns, int32_t own_tokens,
                    int64_t answer_tokens, int32_t replica = -1, traces::Event event = traces::Event::kHistory) {
        event_ = event;
        const RowIndex row = add(conversation, arrival_ns, own_tokens, answer_tokens, from, replica);
        event_ = traces::Event::kHistory;
        return row;
    }
    traces::Trace finish() {
        traces::Trace trace = builder_.finish();
        EXPECT_TRUE(traces::validate(trace).has_value()) << traces::validate(trace).error().message;
        return trace;
    }

private:
    RowIndex add(const std::string& conversation, int64_t arrival_ns, int32_t own_tokens, int64_t answer_tokens,
                 RowIndex from, int32_t replica) {
        Row row;
        row.conversation = builder_.add_conversation(conversation, std::nullopt);
        row.event = event_;
        row.arrival_ns = arrival_ns;
        row.max_tokens = answer_tokens;
        row.replica = replica;
        row.from = row.wait_for = from;
        if (from != traces::kNoRow) row.take = traces::Take::kAll;
        builder_.add_piece({next_space_++, 0, own_tokens, true, true});
        return builder_.add_row(row);
    }
    traces::TraceBuilder builder_;
    uint64_t next_space_ = 1;
    traces::Event event_ = traces::Event::kHistory;
};

ReplicatedResult simulated(const ClusterConfig& cluster, const SimulationConfig& config, const traces::Trace& trace,
                           PlainCost cost) {
    auto result = simulate_cluster(cluster, config, trace, cost, 1000, lru);
    EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message);
    return result ? std::move(*result) : ReplicatedResult{};
}

// One clock for all, or each replica by itself: the same, where a route does not look at loads.
TEST(Cluster, RoutesOfWholeConversationsGiveWhatSeparateReplicasGive) {
    const traces::Trace trace = mooncake_trace(400, 4);
    for (const Route route : {Route::kRoundRobin, Route::kConversation}) {
        PlainCost cost(1e6, 2e4);
        const Router router = route == Route::kRoundRobin ? route_in_turns : route_by_conversation;
        const auto apart = simulate_replicas(replica_config(LookupMode::kPrefix), trace, cost, 1000, lru, 3, router);
        ASSERT_TRUE(apart.has_value());
        const ReplicatedResult one_clock = simulated({.route = route, .num_replicas = 3},
                                                     replica_config(LookupMode::kPrefix), trace, PlainCost(1e6, 2e4));
        EXPECT_EQ(one_clock.whole.driver.times, apart->whole.driver.times);
        EXPECT_EQ(one_clock.whole.driver.virtual_ns, apart->whole.driver.virtual_ns);
        EXPECT_EQ(one_clock.replica_of_row, apart->replica_of_row);
        EXPECT_EQ(one_clock.whole.stats, apart->whole.stats);
    }
}

// Steps are merged for speed alone, and a run depends on nothing else.
TEST(Cluster, MergedStepsChangeNothing) {
    const traces::Trace trace = mooncake_trace(700, 4);  // with forks, and prompts that are answered again
    SimulationConfig merged = replica_config(LookupMode::kPrefix);
    SimulationConfig single = merged;
    single.merge_equal_steps = false;
    std::vector<ClusterConfig> clusters;
    for (const Route route : {Route::kLeastLoaded, Route::kPrefixAware, Route::kPrefixAwareDynamo})
        clusters.push_back({.route = route, .num_replicas = 3});
    clusters.push_back(
        {.apart = PrefillApart{.num_prefill = 2, .num_decode = 2}, .block_bytes = 65536, .row_bytes = 1 << 20});
    clusters.push_back({.route = Route::kLeastLoaded,
                        .autoscale = AutoscaleConfig{.least = 1,
                                                     .most = 4,
                                                     .target = 4,
                                                     .startup_ns = 2000 * kMs,
                                                     .cooldown_ns = 20'000 * kMs,
                                                     .interval_ns = 1000 * kMs}});
    for (const ClusterConfig& cluster : clusters) {
        const ReplicatedResult fast = simulated(cluster, merged, trace, PlainCost(1e6, 2e4));
        const ReplicatedResult slow = simulated(cluster, single, trace, PlainCost(1e6, 2e4));
        EXPECT_EQ(fast.whole.driver.times, slow.whole.driver.times);
        EXPECT_EQ(fast.whole.digest, slow.whole.digest);
        EXPECT_EQ(fast.transfers, slow.transfers);
        EXPECT_LT(fast.whole.num_plans, slow.whole.num_plans);
        EXPECT_EQ(fast.whole.driver.served, fast.whole.requests);
        EXPECT_THAT(fast.whole.driver.unexpected, IsEmpty());
        for (size_t i = 0; i < fast.whole.driver.times.size(); ++i) {
            const RowTimes& times = fast.whole.driver.times[i];
            if (times.first_token_ns < 0) continue;  // a fork
            EXPECT_TRUE(times.due_ns <= times.first_token_ns && times.first_token_ns <= times.end_ns) << i;
        }
    }
}

// A long decode at replica 0, and a row that replica 1 brings to it in the midst: `a` comes to replica 1 during a step,
// and its answer's end brings `b`.
TEST(Cluster, ARowThatWaitsBehindAStepOfAnotherReplicaIsAwaited) {
    Rows rows;
    rows.add("long", 0, 16, 2000, 0);
    rows.add("prompt", 0, 3000, 4, 1);  // 61 ms
    const RowIndex a = rows.add("a", 1 * kMs, 16, 10, 1);
    rows.follow(a, "a", 1 * kMs, 16, 5, 0);
    const traces::Trace trace = rows.finish();
    const ReplicatedResult result =
        simulated({.route = Route::kTrace, .num_replicas = 2}, replica_config(), trace, PlainCost(1e6, 2e4));
    const std::vector<RowTimes>& times = result.whole.driver.times;
    EXPECT_EQ(times[3].due_ns, times[2].end_ns);
    EXPECT_LT(times[3].first_token_ns - times[3].due_ns, 5 * kMs);
}

// Of the whole range, whatever the size of the case.
int any_in(int begin, int end) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(begin, end)); }

// Rows that come close together and follow each other, at any replica.
traces::Trace any_rows(int32_t num_replicas) {
    struct Made {
        RowIndex row;
        std::string conversation;
        bool is_followed = false;
    };
    Rows rows;
    std::vector<Made> made;
    const int num_rows = any_in(3, 40);
    int64_t arrival_ns = 0;
    for (int i = 0; i < num_rows; ++i) {
        arrival_ns += *rc::gen::element(0, 0, 1, 10) * kMs + any_in(0, 1000) * kUs;
        const int32_t own_tokens = *rc::gen::element(5, 100, 4000);
        const int64_t answer_tokens = *rc::gen::element(1, 5, 1000);
        const int32_t replica = any_in(0, num_replicas);
        std::string name = fmt::format("c{}", i);
        if (made.empty() || any_in(0, 2) > 0) {
            made.push_back({rows.add(name, arrival_ns, own_tokens, answer_tokens, replica), name});
            continue;
        }
        Made& from = made[static_cast<size_t>(any_in(0, static_cast<int>(made.size())))];
        if (!std::exchange(from.is_followed, true)) name = from.conversation;
        const RowIndex row = rows.follow(from.row, name, arrival_ns, own_tokens, answer_tokens, replica);
        made.push_back({row, name});
    }
    return rows.finish();
}

ClusterConfig any_cluster(int32_t num_replicas) {
    const Route route = *rc::gen::element(Route::kLeastLoaded, Route::kPrefixAware, Route::kPrefixAwareDynamo,
                                          Route::kTrace, Route::kTrace);
    ClusterConfig cluster{.route = route, .num_replicas = num_replicas, .block_bytes = 65536, .row_bytes = 1 << 20};
    const int kind = any_in(0, 4);
    if (route == Route::kTrace || kind < 2) return cluster;
    if (kind == 2) {
        cluster.apart = PrefillApart{.num_prefill = any_in(1, 3),
                                     .num_decode = any_in(1, 3),
                                     .bytes_per_us = *rc::gen::element(50, 1000, 50'000)};
    } else {
        cluster.autoscale = AutoscaleConfig{.least = 1,
                                            .most = num_replicas,
                                            .target = 2,
                                            .startup_ns = 20 * kMs,
                                            .cooldown_ns = 100 * kMs,
                                            .interval_ns = 10 * kMs};
    }
    return cluster;
}

// Heads leave the small memory, and are read again: rows wait for them.
void add_host_memory(SimulationConfig& config) {
    config.engine.cache.pools.num_state_rows = 3;
    config.tiers.tiers = {{.name = "host", .bytes = int64_t{1} << 30, .bytes_per_us = 1000, .latency_ns = 5 * kMs}};
    config.tiers.restore = *rc::gen::element(RestorePolicy::kAlways, RestorePolicy::kAuto);
    config.tiers.eviction = TierEviction::kLru;
    config.tiers.cache = config.engine.cache;
    config.tiers.cache.kv_block_bytes = 65536;
    config.tiers.cache.state_row_bytes = 1 << 20;
}

SimulationConfig any_replica(bool may_have_host_memory) {
    SimulationConfig config = replica_config(LookupMode::kPrefix);
    config.engine.cache.pools.num_blocks = *rc::gen::element(20'000, 2000, 300);  // less than some rows need
    config.engine.cache.pools.num_state_rows = *rc::gen::element(60, 3);
    if (may_have_host_memory && *rc::gen::arbitrary<bool>()) add_host_memory(config);
    return config;
}

struct AnyRun {
    traces::Trace trace;
    ClusterConfig cluster;
    SimulationConfig replica;
};
AnyRun any_run() {
    const int32_t num_replicas = any_in(1, 4);
    AnyRun run{.trace = any_rows(num_replicas), .cluster = any_cluster(num_replicas), .replica = {}};
    run.replica = any_replica(!run.cluster.apart);
    return run;
}

RC_GTEST_PROP(ClusterProperties, MergedStepsChangeNoTime, ()) {
    const AnyRun run = any_run();
    SimulationConfig single = run.replica;
    single.merge_equal_steps = false;
    const ReplicatedResult fast = simulated(run.cluster, run.replica, run.trace, PlainCost(1e6, 2e4));
    const ReplicatedResult slow = simulated(run.cluster, single, run.trace, PlainCost(1e6, 2e4));
    RC_ASSERT(fast.replica_of_row == slow.replica_of_row);
    RC_ASSERT(fast.whole.driver.times == slow.whole.driver.times);
    RC_ASSERT(fast.whole.digest == slow.whole.digest);
    RC_ASSERT(fast.transfers == slow.transfers);
}

// A step computes a token at least, but for those after which requests that wait are looked at again: a few for each
// row. What is computed again after a preemption is far less than all of it ten times.
RC_GTEST_PROP(ClusterProperties, RunsEndWithinAFewStepsForEachToken, ()) {
    const AnyRun run = any_run();
    int64_t most_steps = 0;
    int64_t most_ns = 0;
    for (const Row& row : run.trace.rows) {
        const int64_t num_tokens = row.prompt_tokens + row.max_tokens;
        most_steps += 10 * (row.max_tokens + 50);
        most_ns = std::max(most_ns, row.arrival_ns) + 1000 * kMs + 10 * num_tokens * 20 * kUs;
    }
    most_ns += most_steps * kMs;
    int64_t num_steps = 0;
    PlainCost cost(1e6, 2e4);
    const auto result = simulate_cluster(run.cluster, run.replica, run.trace, cost, 1000, lru,
                                         [&](int64_t) { RC_ASSERT(++num_steps <= most_steps); });
    RC_ASSERT(result.has_value());
    RC_ASSERT(result->whole.driver.virtual_ns <= most_ns);
    for (const RowTimes& times : result->whole.driver.times) RC_ASSERT(times.outcome != RowOutcome::kNotOver);
}

// A step is 1 ms. The long answer keeps replica 0, so that the next two requests go to replica 1, then to 0 again.
TEST(Cluster, LeastLoadedTakesTheReplicaWithTheFewestRequests) {
    Rows rows;
    rows.add("a", 0, 10, 100);
    rows.add("b", 1 * kMs, 10, 3);    // until 4 ms
    rows.add("c", 10 * kMs, 10, 20);  // b is over
    rows.add("d", 11 * kMs, 10, 3);   // one on each: the first
    rows.add("e", 12 * kMs, 10, 3);   // two and one
    const traces::Trace trace = rows.finish();
    const ReplicatedResult result =
        simulated({.route = Route::kLeastLoaded, .num_replicas = 2}, replica_config(), trace, PlainCost(1e6, 0));
    EXPECT_THAT(result.replica_of_row, ElementsAre(0, 1, 1, 0, 1));
    EXPECT_EQ(result.whole.driver.times[1].end_ns, 4 * kMs);
    EXPECT_EQ(result.replicas[0].served, 2);
    EXPECT_EQ(result.replicas[1].served, 3);
}

// A later turn goes where the conversation's head is, even to the replica with more requests, and elsewhere when many
// wait there.
TEST(Cluster, PrefixAwareRoutesWeighWhatAReplicaHolds) {
    for (const Route route : {Route::kPrefixAware, Route::kPrefixAwareDynamo}) {
        Rows rows;
        rows.add("a", 0, 10, 2);                       // replica 0, until 2 ms
        const RowIndex b = rows.add("b", 0, 4000, 3);  // 1
        rows.add("c", 2 * kMs + 1, 10, 100);           // 0
        rows.follow(b, "b", 10 * kMs, 10, 100);        // to its head: 1
        rows.follow(b, "b2", 11 * kMs, 10, 100);       // one on each, the same head
        const ReplicatedResult result = simulated(
            {.route = route, .num_replicas = 2}, replica_config(LookupMode::kPrefix), rows.finish(), PlainCost(1e6, 0));
        EXPECT_THAT(result.replica_of_row, ElementsAre(0, 1, 0, 1, 1)) << static_cast<int>(route);
        EXPECT_EQ(result.whole.driver.times[3].reused_tokens, 4002);
        EXPECT_EQ(result.whole.driver.times[4].reused_tokens, 4002);
    }
}

TEST(Cluster, TheTraceCanSayWhichReplica) {
    Rows rows;
    const RowIndex a = rows.add("a", 0, 100, 2, 1);
    rows.add("b", 0, 100, 2, 1);
    rows.follow(a, "a", 50 * kMs, 10, 2, 0);  // another replica has nothing of it
    const traces::Trace trace = rows.finish();
    const ReplicatedResult result =
        simulated({.route = Route::kTrace, .num_replicas = 2}, replica_config(), trace, PlainCost(1e6, 0));
    EXPECT_THAT(result.replica_of_row, ElementsAre(1, 1, 0));
    EXPECT_EQ(result.whole.driver.times[2].reused_tokens, 0);
    PlainCost cost(1e6, 0);
    const auto wrong =
        simulate_cluster({.route = Route::kTrace, .num_replicas = 1}, replica_config(), trace, cost, 1000, lru);
    ASSERT_FALSE(wrong.has_value());
    EXPECT_THAT(wrong.error().message, HasSubstr("row 0 of the trace has replica 1, wanted 0 ... 0"));
}

// A suffix is nothing without what came before.
TEST(Cluster, WhatNeedsItsConversationStaysAtItsReplica) {
    Rows rows;
    const RowIndex a = rows.add("a", 0, 100, 2);
    rows.add("b", 0, 100, 60);
    const RowIndex again = rows.follow(a, "a", 10 * kMs, 10, 60, -1, traces::Event::kSuffix);
    rows.add("c", 11 * kMs, 100, 2);
    rows.add("d", 11 * kMs, 100, 2);
    rows.follow(again, "a", 100 * kMs, 10, 2, -1, traces::Event::kSuffix);
    const traces::Trace trace = rows.finish();
    const ReplicatedResult result =
        simulated({.route = Route::kLeastLoaded, .num_replicas = 2}, replica_config(), trace, PlainCost(1e6, 0));
    EXPECT_THAT(result.whole.driver.unexpected, IsEmpty());
    EXPECT_EQ(result.replica_of_row[2], result.replica_of_row[0]);
    EXPECT_EQ(result.replica_of_row[5], result.replica_of_row[0]);
    EXPECT_GT(result.whole.driver.times[5].reused_tokens, 0);
    PlainCost cost(1e6, 0);
    const auto apart = simulate_cluster({.apart = PrefillApart{}}, replica_config(), trace, cost, 1000, lru);
    ASSERT_FALSE(apart.has_value());
    EXPECT_THAT(apart.error().message, HasSubstr("needs what its conversation left at its replica"));
}

// 1 us a token; a block of 16 tokens has 1000 bytes, a state 5000; 100 bytes a us and 30 us for each head.
TEST(Cluster, PromptsApartTakeTheTimesThatFollowByHand) {
    Rows rows;
    const RowIndex a = rows.add("a", 0, 100, 10);
    rows.add("b", 10 * kUs, 50, 3);
    rows.follow(a, "a", 1000 * kUs, 20, 2);
    const PrefillApart apart{.num_prefill = 1, .num_decode = 1, .bytes_per_us = 100, .latency_ns = 30 * kUs};
    const ReplicatedResult result = simulated({.apart = apart, .block_bytes = 1000, .row_bytes = 5000},
                                              replica_config(LookupMode::kPrefix), rows.finish(), PlainCost(0, 1000));
    const std::vector<RowTimes>& times = result.whole.driver.times;
    // The prompt until 100. Its head of 99 tokens is 7 blocks and a state: 120 us, and 30. One more token is computed.
    EXPECT_EQ(times[0].first_token_ns, (100 + 150 + 1) * kUs);
    EXPECT_EQ(times[0].end_ns, (251 + 9) * kUs);
    // Its prompt from 100 to 150; its head of 49 tokens, 4 blocks and a state, waits for the sender until 250.
    EXPECT_EQ(times[1].first_token_ns, (250 + 30 + 90 + 1) * kUs);
    EXPECT_EQ(times[1].end_ns, (371 + 2) * kUs);
    // 130 tokens. The first replica has the head of the prompt before, the second one the 109 tokens with the answer,
    // 6 full blocks: of 129 tokens, 3 blocks and a state are sent.
    const int64_t computed = 130 - times[2].reused_tokens;
    EXPECT_EQ(times[2].reused_tokens, 100);
    EXPECT_EQ(times[2].first_token_ns, (1000 + computed + 30 + 80 + 1) * kUs);
    EXPECT_EQ(result.transfers.heads, 3);
    EXPECT_EQ(result.transfers.bytes, 12'000 + 9'000 + 8'000);
    EXPECT_EQ(result.transfers.without_room, 0);
    EXPECT_EQ(result.whole.driver.served, 3);
    EXPECT_EQ(result.whole.driver.turns, 3);
    EXPECT_EQ(result.whole.stats.reused_tokens, 100);
    EXPECT_EQ(result.whole.stats.computed_prompt_tokens, 100 + 50 + 30);
    ASSERT_EQ(result.replicas.size(), 2u);
    EXPECT_EQ(result.replicas[0].role, EngineRole::kPrompts);
    EXPECT_EQ(result.replicas[1].served, 3);
}

// A step is 1 ms. Two requests a replica are wanted; six come at 10 ms and run until 310 ms. At 100 ms three replicas
// are wanted; from 400 ms on one, which was wanted for the whole cool-down at 600 ms.
TEST(Cluster, ReplicasComeAndGoAtTheTimesThatFollowByHand) {
    Rows rows;
    for (const char* name : {"a", "b", "c", "d", "e", "f"}) rows.add(name, 10 * kMs, 10, 300);
    rows.add("early", 140 * kMs, 10, 10);  // the new ones are not ready: to the first
    rows.add("late", 160 * kMs, 10, 10);   // they are
    rows.add("last", 1000 * kMs, 10, 1);
    const AutoscaleConfig autoscale{.least = 1,
                                    .most = 4,
                                    .metric = ScaleMetric::kRequests,
                                    .target = 2,
                                    .startup_ns = 50 * kMs,
                                    .cooldown_ns = 200 * kMs,
                                    .interval_ns = 100 * kMs};
    const ReplicatedResult result = simulated({.route = Route::kLeastLoaded, .autoscale = autoscale}, replica_config(),
                                              rows.finish(), PlainCost(1e6, 0));
    EXPECT_THAT(result.replica_of_row, ElementsAre(0, 0, 0, 0, 0, 0, 0, 1, 0));
    EXPECT_EQ(result.whole.driver.times[0].end_ns, 310 * kMs);
    EXPECT_EQ(result.whole.driver.times[7].end_ns, 170 * kMs);
    ASSERT_EQ(result.replicas.size(), 3u);
    for (const size_t i : {1, 2}) {
        EXPECT_EQ(result.replicas[i].begin_ns, 100 * kMs) << i;
        EXPECT_EQ(result.replicas[i].virtual_ns, 600 * kMs) << i;
    }
    EXPECT_EQ(result.replicas[0].begin_ns, 0);
    EXPECT_EQ(result.replicas[0].virtual_ns, 1001 * kMs);
    EXPECT_EQ(result.replicas[0].rows, 8);
    EXPECT_EQ(result.replicas[1].rows, 1);
}

// One that goes has no new requests, and is there until its last one is over.
TEST(Cluster, AReplicaThatGoesEndsItsRequests) {
    Rows rows;
    for (const char* name : {"a", "b", "c", "d"}) rows.add(name, 0, 10, 120);
    rows.add("long", 110 * kMs, 10, 500);  // to the new one, which is not wanted from 200 ms on
    rows.add("next", 500 * kMs, 10, 2);
    rows.add("last", 900 * kMs, 10, 2);
    const AutoscaleConfig autoscale{
        .least = 1, .most = 2, .target = 1, .startup_ns = 0, .cooldown_ns = 0, .interval_ns = 100 * kMs};
    const ReplicatedResult result = simulated({.route = Route::kLeastLoaded, .autoscale = autoscale}, replica_config(),
                                              rows.finish(), PlainCost(1e6, 0));
    ASSERT_EQ(result.replicas.size(), 2u);
    EXPECT_THAT(result.replica_of_row, ElementsAre(0, 0, 0, 0, 1, 0, 0));
    EXPECT_EQ(result.replicas[1].begin_ns, 100 * kMs);
    EXPECT_EQ(result.replicas[1].virtual_ns, 610 * kMs);
    EXPECT_EQ(result.whole.driver.times[4].end_ns, 610 * kMs);
}

}  // namespace
}  // namespace verbatim::tests
