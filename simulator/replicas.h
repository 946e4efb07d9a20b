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
#include "simulator/simulated_engine.h"
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

// The first row of each row's group.
std::vector<size_t> first_rows_of_groups(const traces::Trace& trace);

struct ReplicaSummary {
    int64_t rows = 0;
    int64_t served = 0;
    int64_t steps = 0;
    int64_t virtual_ns = 0;
    Digest digest;
    int64_t begin_ns = 0;  // it is there and is paid for; until virtual_ns
    EngineRole role = EngineRole::kWhole;
};
// Heads that went from replicas of prompts to replicas of answers.
struct TransferCounts {
    int64_t heads = 0;
    int64_t bytes = 0;         // of each GPU's part
    int64_t wait_ns = 0;       // of all heads, from the prompt's end until the head was there
    int64_t without_room = 0;  // the receiver computed the prompt again
    friend bool operator==(const TransferCounts&, const TransferCounts&) = default;
};

struct ReplicatedResult {
    // Times by row of the whole trace; counts and prices summed over replicas; the longest virtual time; per-replica
    // peaks. Steps of different replicas are not distinguished, so they are not recorded.
    SimulationResult whole;
    std::vector<ReplicaSummary> replicas;
    std::vector<int32_t> replica_of_row;  // with prompts apart: the one that answers
    TransferCounts transfers;
};
// Adds the counts and prices of a replica that had `rows` of the whole trace.
void add_result(SimulationResult& sum, SimulationResult more, const std::vector<size_t>& rows);

// `policy` creates each replica's policy. REQUIRES: no recorded run, no recording of steps.
Result<ReplicatedResult> simulate_replicas(const SimulationConfig& config, const traces::Trace& trace, CostModel& cost,
                                           int32_t vocab_size,
                                           const std::function<std::unique_ptr<EvictionPolicy>()>& policy,
                                           int32_t num_replicas, const Router& router,
                                           const std::function<void(int64_t)>& progress = {});

}  // namespace verbatim
