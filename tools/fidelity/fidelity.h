// tools/fidelity/fidelity.h: compares a simulation with the run that it simulates.
//
// The engine runs a trace on an executor of this machine: every step computes, and virtual time advances by the step's
// measured time. The same trace is simulated with the device file of `verbatim calibrate`. Both use the engine's
// decisions; answers have the trace's lengths. Real runs are repeated, those of all loads in turn, so that disturbances
// of the machine affect all of them.
//   F1  a load is a share of capacity: the requests per second of the simulation when all requests arrive at once
//   F2  an error is the simulation against the median of the real runs; the spread is the real runs' variation:
//       (largest - smallest) / median
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "simulator/device.h"
#include "tools/program/time_source.h"
#include "traces/read.h"

namespace verbatim::tools {

struct FidelityConfig {
    std::string trace;
    traces::ReadOptions read;
    std::string model = "tiny-granite";
    std::string executor = "cpu";
    TimeSource time = TimeSource::kWall;
    std::vector<double> loads = {0.5, 0.85};  // shares of capacity; all at once is always measured
    int32_t rounds = 5;
    int32_t num_threads = 1;
    int32_t step_tokens = 512;
    int32_t num_blocks = 4096;  // of 16 tokens
    int32_t num_state_rows = 128;
    int64_t max_context = 2048;
    uint64_t seed = 0;
};

// One run's figures, in seconds except the last.
struct RunFigures {
    double e2e_p50 = 0;
    double e2e_p95 = 0;
    double ttft_p50 = 0;
    double ttft_p95 = 0;
    double tpot_p50 = 0;
    double tpot_p95 = 0;
    double tokens_per_s = 0;  // sampled, over the whole run
};
struct FigureName {
    const char* name;
    double RunFigures::*figure;
};
[[nodiscard]] std::vector<FigureName> figure_names();

struct LoadFidelity {
    double load = 0;  // 0: everything at once
    double rate = 0;  // requests per second; 0: everything at once
    RunFigures simulated;
    std::vector<RunFigures> real;
    int64_t num_requests = 0;  // answered
};

struct Fidelity {
    FidelityConfig config;
    double capacity = 0;  // requests per second
    std::vector<LoadFidelity> loads;
};

// Errors: no such trace, model or executor; a device without steps of the model.
Result<Fidelity> measure_fidelity(const FidelityConfig& config, const Device& device);

[[nodiscard]] double error_of(const LoadFidelity& load, const FigureName& figure);
[[nodiscard]] double spread_of(const LoadFidelity& load, const FigureName& figure);
[[nodiscard]] nlohmann::ordered_json fidelity_json(const Fidelity& fidelity);
[[nodiscard]] std::string fidelity_table(const Fidelity& fidelity);

}  // namespace verbatim::tools
