// simulator/replicas.h: owns the simulation of one trace on several replicas, which share nothing but the clients'
// clock: each has a separate engine, cache and device.
//
// A *group* is a connected component of rows: a conversation, its forks, and the rows that wait for them. A router
// assigns whole groups when their first row arrives, so replicas never wait for each other, and each is simulated
// separately on the one virtual clock.
//   G1  every row is on one replica, with all rows of its group, and keeps its time, text and position of its outcome
//   G2  a replica's part of the result is simulate() of its rows
//   G3  one replica gives what simulate() gives, byte for byte
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "simulator/simulation.h"
#include "traces/trace.h"

namespace verbatim {

// A router's view of a group.
struct RowGroup {
    int64_t number = 0;             // in the order of first rows
    std::string_view conversation;  // of the first row
};
// Returns the replica, of `num_replicas`, for a group.
using Router = std::function<int32_t(const RowGroup& group, int32_t num_replicas)>;
int32_t route_in_turns(const RowGroup& group, int32_t num_replicas);
int32_t route_by_conversation(const RowGroup& group, int32_t num_replicas);  // by a digest of its name

// The replica of every row. REQUIRES: the router returns 0 ... num_replicas - 1.
std::vector<int32_t> replicas_of(const traces::Trace& trace, int32_t num_replicas, const Router& router);

struct ReplicaSummary {
    int64_t rows = 0;
    int64_t served = 0;
    int64_t steps = 0;
    int64_t virtual_ns = 0;
    Digest digest;
};
struct ReplicatedResult {
    // Times by row of the whole trace; counts and prices summed over replicas; the longest virtual time; per-replica
    // peaks. Steps of different replicas are not distinguished, so they are not recorded.
    SimulationResult whole;
    std::vector<ReplicaSummary> replicas;
    std::vector<int32_t> replica_of_row;
};
// `policy` creates each replica's policy. REQUIRES: no recorded run, no recording of steps.
Result<ReplicatedResult> simulate_replicas(const SimulationConfig& config, const traces::Trace& trace, CostModel& cost,
                                           int32_t vocab_size,
                                           const std::function<std::unique_ptr<EvictionPolicy>()>& policy,
                                           int32_t num_replicas, const Router& router,
                                           const std::function<void(int64_t)>& progress = {});

}  // namespace verbatim
