// simulator/plan.h: the fewest GPUs with which a trace keeps its objectives, or the highest rate at which it does.
// Every answer is a simulation by the engine's own scheduler (simulator/run.h).
//
//   L1  the answer keeps every objective; with one replica less, or at the next higher rate that was asked, it does not
//   L2  of several configurations the answer has the fewest GPUs, or the most requests per second and GPU; then the
//       higher throughput, then the earlier place in the list
//   L3  the result does not depend on the number of threads
//   L4  bounds are the answer's configuration searched again with all kernels as fast, and as slow, as the device file
//       and published runs say that they may be (run.h, bound_factors): the fewest GPUs may be any number between
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "simulator/deployment.h"
#include "simulator/device.h"
#include "simulator/metrics.h"
#include "simulator/model_shape.h"
#include "simulator/plan_objectives.h"
#include "simulator/run.h"
#include "traces/trace.h"

namespace verbatim {

// One replica's configuration.
struct PlanCandidate {
    std::string device;
    int32_t step_tokens = 0;
    int32_t max_num_sequences = 0;
    WeightFormat weights = WeightFormat::kBf16;
    int32_t kv_value_bytes = 2;
    Parallelism parallelism;
    friend bool operator==(const PlanCandidate&, const PlanCandidate&) = default;
};

struct RateRange {
    double low = 1;
    double high = 1;
};

struct PlanConfig {
    SimulateConfig simulate;  // what all candidates have in common
    std::vector<Objective> objectives;
    int32_t max_replicas = 64;
    std::optional<RateRange> rates;        // ask for the highest rate on max_replicas; none: for the fewest GPUs
    double rate_scale = 1;                 // of the trace, when the fewest GPUs are asked for
    std::optional<double> price_per_hour;  // of one GPU, in dollars
    int32_t num_threads = 1;               // candidates at a time
    bool bounds = true;                    // L4, where the price of the answer has bounds
    // Called with the share of the work that is done, by one thread at a time; a candidate's number of trials is not
    // known before, so that its end may come early.
    std::function<void(double share)> progress;
};

// A candidate at a number of replicas and a rate.
struct Trial {
    int32_t num_replicas = 0;
    int32_t num_gpus = 0;  // of all replicas
    double rate_scale = 1;
    std::vector<Measured> measured;  // per objective
    bool keeps = false;
    bool is_bounded = false;  // is_bounded() of its run
    int64_t requests = 0;     // of the trace
    int64_t answered = 0;
    int64_t rejected = 0;
    std::vector<std::string> unexpected;  // rows with another result than the trace expects, such as busy ones
    int64_t output_tokens = 0;
    int64_t prompt_tokens = 0;
    double duration_s = 0;
    double hit_rate = 0;  // by token
    int64_t preemptions = 0;
    Distribution ttft;
    Distribution tpot;
    Distribution e2e;
    Distribution client_wait;
    int64_t within_limits = 0;  // answered requests that are within the limit of every latency (slo_of)
    [[nodiscard]] double requests_per_s() const {
        return duration_s > 0 ? static_cast<double>(answered) / duration_s : 0;
    }
    [[nodiscard]] double goodput_per_s() const {
        return duration_s > 0 ? static_cast<double>(within_limits) / duration_s : 0;
    }
};

// What was found for a candidate.
struct CandidatePlan {
    PlanCandidate candidate;
    std::string problem;         // why it cannot run at all, such as weights that do not fit; empty: it can
    std::optional<Trial> best;   // L1; empty: none of what was asked keeps the objectives
    std::optional<Trial> worse;  // the neighbour that does not keep them; with no `best`, the largest or slowest asked
    std::optional<Trial> alone;  // every request alone on one replica: what no number of replicas improves
    std::vector<Trial> tried;    // all but `alone`, by replicas, then by rate
    [[nodiscard]] int32_t num_trials() const { return static_cast<int32_t>(tried.size()); }
};

// The answer's configuration where kernels take so many times as long.
struct PlanBound {
    KernelFactors factors;
    Trial answer;               // at the answer's replicas and rate
    std::optional<Trial> best;  // L1 with these kernels; empty: none of what was asked keeps the objectives
};
struct PlanBounds {
    PlanBound fast;
    PlanBound slow;
};

struct Plan {
    std::string trace;
    std::string model;
    bool is_stored = false;  // bf16 stands for the checkpoint's own types, which are others
    PlanConfig config;
    std::map<std::string, Device> devices;  // by the candidates' names
    std::vector<CandidatePlan> candidates;  // in the order that was asked
    std::optional<size_t> answer;           // among them
    std::optional<size_t> runner_up;
    std::optional<PlanBounds> bounds;  // of the answer
};

// The trace with its arrivals an hour apart, so that no request waits for another.
[[nodiscard]] traces::Trace spread_out(const traces::Trace& trace);

// Error: no candidate, or a trace that cannot run.
Result<Plan> make_plan(const PlanConfig& config, const ModelShape& model, const std::vector<PlanCandidate>& candidates,
                       const std::map<std::string, Device>& devices, const std::string& trace_name,
                       const traces::Trace& trace);

// One trial of one candidate.
Result<Trial> try_plan(const PlanConfig& config, const ModelShape& model, const PlanCandidate& candidate,
                       const Device& device, int32_t num_replicas, double rate_scale, const traces::Trace& trace);

}  // namespace verbatim
