// simulator/replicas.h: one trace on several replicas that share nothing but their clients' clock: each has its own
// engine, cache and device.
//
// A *group* is what clients can connect: the rows of a conversation, of those that fork from it, and of those that wait
// for them. A router sends whole groups, when the first of their rows arrives; so replicas never wait for each other,
// and each is simulated by itself on the one virtual clock.
//   G1  every row is on one replica, with all rows of its group, and keeps its time, text and outcome's place
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

// What a router sees of a group.
struct RowGroup {
    int64_t number = 0;             // in order of their first rows
    std::string_view conversation;  // of the first row
};
// The replica, of `num_replicas`, that serves a group.
using Router = std::function<int32_t(const RowGroup& group, int32_t num_replicas)>;
int32_t route_in_turns(const RowGroup& group, int32_t num_replicas);
int32_t route_by_conversation(const RowGroup& group, int32_t num_replicas);  // by a digest of its name

// The replica of every row. REQUIRES: the router answers 0 ... num_replicas - 1.
std::vector<int32_t> replicas_of(const traces::Trace& trace, int32_t num_replicas, const Router& router);

struct ReplicaSummary {
    int64_t rows = 0;
    int64_t served = 0;
    int64_t steps = 0;
    int64_t virtual_ns = 0;
    Digest digest;
};
struct ReplicatedResult {
    // Times by row of the whole trace; counts and prices of all replicas together; the longest virtual time; peaks of
    // one replica. Steps are not told apart, and so not told.
    SimulationResult whole;
    std::vector<ReplicaSummary> replicas;
};
// `policy` makes each replica its own. REQUIRES: no record, no steps to be told.
Result<ReplicatedResult> simulate_replicas(const SimulationConfig& config, const traces::Trace& trace, CostModel& cost,
                                           int32_t vocab_size,
                                           const std::function<std::unique_ptr<EvictionPolicy>()>& policy,
                                           int32_t num_replicas, const Router& router,
                                           const std::function<void(int64_t)>& progress = {});

}  // namespace verbatim
