// simulator/cluster.h: owns the simulation of one trace on several replicas under one virtual clock, where a router
// sends each request when it arrives (simulator/routes.h), prompts and answers may be computed by different replicas,
// and replicas may come and go (simulator/autoscaler.h).
//
//   C1  with a fixed number of replicas and a route of whole conversations every row has the times that
//       simulate_replicas() gives
//   C2  the same trace and configuration give the same result, byte for byte
//   C3  rows that need what an earlier row of their conversation left at its replica (suffixes, rewinds, ...) go to the
//       replica of the group's first row, whatever the route. A prompt that is answered again is sent whole elsewhere
//   C4  a replica that goes takes no more requests, and is there until its last one is over
//
// Apart: the prompt is computed by one of P replicas as a request without an answer. Then the head of all of it but its
// last token goes to one of D replicas: the KV blocks that are not there, and the state, after the sender's transfers
// before it:  end = max(now, end of the sender's last one) + latency + bytes / rate. The receiver computes the prompt's
// last token and the answer. A receiver without room for the head computes the whole prompt again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/base/result.h"
#include "simulator/autoscaler.h"
#include "simulator/replicas.h"
#include "simulator/routes.h"
#include "simulator/simulation.h"
#include "traces/trace.h"

namespace verbatim {

// Separate replicas for prompts and for answers.
struct PrefillApart {
    int32_t num_prefill = 1;
    int32_t num_decode = 1;
    int64_t bytes_per_us = 50'000;  // of a GPU to another
    int64_t latency_ns = 10'000;    // of each head
    friend bool operator==(const PrefillApart&, const PrefillApart&) = default;
};

struct ClusterConfig {
    Route route = Route::kRoundRobin;
    int32_t num_replicas = 1;
    std::optional<PrefillApart> apart;  // instead of num_replicas
    std::optional<AutoscaleConfig> autoscale;
    // Of a head that is sent, per GPU.
    int64_t block_bytes = 0;
    int64_t row_bytes = 0;
};

// Error: a row that names no replica, or one that is not there.
Status check_named_replicas(const traces::Trace& trace, int32_t num_replicas);

// `policy` creates each replica's policy. Errors: those of simulate(); a row without a replica, with Route::kTrace;
// rows of C3 with prefill apart or with autoscaling. REQUIRES: no recorded run, no recording of steps.
Result<ReplicatedResult> simulate_cluster(const ClusterConfig& cluster, const SimulationConfig& config,
                                          const traces::Trace& trace, CostModel& cost, int32_t vocab_size,
                                          const std::function<std::unique_ptr<EvictionPolicy>()>& policy,
                                          const std::function<void(int64_t)>& progress = {});

}  // namespace verbatim
