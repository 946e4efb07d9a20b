// Several replicas under one clock: nothing is lost, nothing comes before its cause, and one of them is simulate().
#include "simulator/replicas.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "simulator/eviction_policies.h"
#include "simulator/kernel_times.h"
#include "simulator/step_cost.h"
#include "tests/support/trace_run.h"
#include "traces/transform.h"

namespace verbatim::tests {
namespace {

using traces::Row;
using traces::RowIndex;

SimulationConfig replica_config() {
    SimulationConfig config;
    config.engine.cache.pools.num_blocks = 20'000;
    config.engine.cache.pools.num_state_rows = 60;
    config.engine.scheduler.step_tokens = 8192;
    config.engine.max_model_len = 131072;
    return config;
}

// One cost for all that are compared.
class Replicas {
public:
    Replicas() {
        device_.memory_bytes_per_s = 1e15;
        device_.bf16_flops = 1e11;
        device_.step_overhead_ns = 1e6;
    }
    std::unique_ptr<EvictionPolicy> policy() const {
        return make_eviction_policy(EvictionChoice::kLru, {.kv_bytes_per_token = 4096, .flops_per_token = 1e9});
    }
    SimulationResult one(const traces::Trace& trace) {
        const auto mine = policy();
        auto result = simulate(replica_config(), trace, cost_, 1000, *mine);
        EXPECT_TRUE(result.has_value());
        return std::move(*result);
    }
    ReplicatedResult several(const traces::Trace& trace, int32_t num_replicas, const Router& router) {
        auto result = simulate_replicas(
            replica_config(), trace, cost_, 1000, [&] { return policy(); }, num_replicas, router);
        EXPECT_TRUE(result.has_value());
        return std::move(*result);
    }

private:
    Device device_;
    ModelShape model_{.matmuls = {{.n = 1000, .k = 1000}}};
    RooflineTimes kernels_{device_};
    StepCost cost_{model_, device_, kernels_};
};

TEST(Replicas, OneIsTheSimulationByItself) {
    const traces::Trace trace = mooncake_trace(300);
    Replicas replicas;
    const SimulationResult alone = replicas.one(trace);
    const ReplicatedResult one = replicas.several(trace, 1, route_in_turns);
    EXPECT_EQ(one.whole.digest, alone.digest);
    EXPECT_EQ(one.whole.decisions, alone.decisions);
    EXPECT_EQ(one.whole.driver.times, alone.driver.times);
    EXPECT_EQ(one.whole.stats, alone.stats);
    EXPECT_EQ(one.whole.price.ns, alone.price.ns);
    // Others that serve nothing change nothing of it.
    const auto to_second = [](const RowGroup&, int32_t) { return 1; };
    const ReplicatedResult idle = replicas.several(trace, 3, to_second);
    EXPECT_EQ(idle.whole.driver.times, alone.driver.times);
    EXPECT_EQ(idle.whole.stats, alone.stats);
    EXPECT_EQ(idle.replicas[1].digest, alone.digest);
    EXPECT_EQ(idle.replicas[0].rows + idle.replicas[2].rows, 0);
}

// Every row has one outcome and one place; a row that waits, waits for an answer of the same replica.
TEST(Replicas, NothingIsLostAndNothingComesBeforeItsCause) {
    const traces::Trace trace = mooncake_trace(600);
    Replicas replicas;
    const SimulationResult alone = replicas.one(trace);
    for (const Router& router : {Router(route_in_turns), Router(route_by_conversation)}) {
        for (const int32_t num_replicas : {2, 5}) {
            const ReplicatedResult result = replicas.several(trace, num_replicas, router);
            const DriverReport& driver = result.whole.driver;
            EXPECT_EQ(result.whole.requests, alone.requests);
            EXPECT_EQ(driver.rows, alone.driver.rows);
            EXPECT_EQ(driver.served + driver.rejected + driver.aborted + driver.refused + driver.busy + driver.recorded,
                      alone.driver.served + alone.driver.rejected + alone.driver.aborted + alone.driver.refused +
                          alone.driver.busy + alone.driver.recorded);
            int64_t served = 0;
            int64_t rows = 0;
            for (const ReplicaSummary& replica : result.replicas) {
                served += replica.served;
                rows += replica.rows;
                EXPECT_GT(replica.served, 0);
            }
            EXPECT_EQ(served, driver.served);
            EXPECT_EQ(rows, driver.rows);
            const std::vector<int32_t> places = replicas_of(trace, num_replicas, router);
            for (size_t i = 0; i < trace.rows.size(); ++i) {
                const RowTimes& times = driver.times[i];
                ASSERT_NE(times.outcome, RowOutcome::kNotOver) << i;
                EXPECT_LE(times.wanted_ns, times.end_ns);
                if (times.first_token_ns >= 0) EXPECT_LE(times.due_ns, times.first_token_ns);
                EXPECT_GE(times.due_ns, trace.rows[i].arrival_ns);
                for (const RowIndex cause : {trace.rows[i].wait_for, trace.rows[i].from}) {
                    if (cause == traces::kNoRow) continue;
                    EXPECT_EQ(places[i], places[static_cast<size_t>(index(cause))]) << i;
                }
                if (trace.rows[i].wait_for != traces::kNoRow) {
                    EXPECT_GE(times.due_ns, driver.times[static_cast<size_t>(index(trace.rows[i].wait_for))].end_ns);
                }
            }
        }
    }
}

// A part of the result is the simulation of that part, and the whole is no more than the parts.
TEST(Replicas, EveryReplicaIsTheSimulationOfItsRows) {
    const traces::Trace trace = mooncake_trace(400);
    Replicas replicas;
    const ReplicatedResult result = replicas.several(trace, 3, route_in_turns);
    const std::vector<int32_t> places = replicas_of(trace, 3, route_in_turns);
    int64_t steps = 0;
    int64_t most_ns = 0;
    for (int32_t replica = 0; replica < 3; ++replica) {
        std::vector<size_t> rows;
        for (size_t i = 0; i < places.size(); ++i) {
            if (places[i] == replica) rows.push_back(i);
        }
        const SimulationResult part = replicas.one(traces::only_rows(trace, rows));
        for (size_t i = 0; i < rows.size(); ++i) {
            EXPECT_EQ(result.whole.driver.times[rows[i]].prompt_tokens, part.driver.times[i].prompt_tokens);
        }
        EXPECT_EQ(result.replicas[static_cast<size_t>(replica)].rows, std::ssize(rows));
        steps += result.replicas[static_cast<size_t>(replica)].steps;
        most_ns = std::max(most_ns, result.replicas[static_cast<size_t>(replica)].virtual_ns);
    }
    EXPECT_EQ(result.whole.stats.steps, steps);
    EXPECT_EQ(result.whole.driver.virtual_ns, most_ns);
}

// In turns, groups are spread evenly; more of them make no client wait longer on the whole.
TEST(Replicas, RoutesSpreadGroupsAndMoreOfThemAreQuicker) {
    const traces::Trace trace = mooncake_trace(600);
    const std::vector<int32_t> places = replicas_of(trace, 4, route_in_turns);
    std::map<int32_t, int64_t> groups;
    for (size_t i = 0; i < places.size(); ++i) {
        const Row& row = trace.rows[i];
        if (row.from == traces::kNoRow && row.wait_for == traces::kNoRow) ++groups[places[i]];
    }
    ASSERT_EQ(groups.size(), 4u);
    for (const auto& [replica, count] : groups) EXPECT_NEAR(count, groups[0], 1) << replica;
    Replicas replicas;
    const auto wait_ns = [&](int32_t num_replicas) {
        const ReplicatedResult result = replicas.several(trace, num_replicas, route_in_turns);
        int64_t sum = 0;
        for (const RowTimes& times : result.whole.driver.times) {
            if (times.first_token_ns >= 0) sum += times.first_token_ns - times.wanted_ns;
        }
        return sum;
    };
    EXPECT_LT(wait_ns(4), wait_ns(1));
}

TEST(Replicas, ARouteByConversationDependsOnItsNameAlone) {
    const std::vector<std::string> names = {"a", "b", "c", "d", "e", "f", "g", "h"};
    std::set<int32_t> used;
    for (size_t i = 0; i < names.size(); ++i) {
        const int32_t place = route_by_conversation({static_cast<int64_t>(i), names[i]}, 3);
        EXPECT_EQ(place, route_by_conversation({static_cast<int64_t>(100 - i), names[i]}, 3));
        EXPECT_TRUE(place >= 0 && place < 3);
        used.insert(place);
    }
    EXPECT_EQ(used.size(), 3u);
}

}  // namespace
}  // namespace verbatim::tests
