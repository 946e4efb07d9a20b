// simulator/simulation.h: owns the simulation of one trace through the engine's scheduler and cache, on one replica
// whose executor is a cost model.
//
// Clients request answers without their lengths; the trace has the length, and the executor stops there. So every
// decision is the engine's, and only durations are modelled.
//   S1  the same trace and configuration give the same result, byte for byte, on any machine and in any build
//   S2  every row has one outcome, and the outcomes sum to the driver's counts
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "simulator/cost_executor.h"
#include "simulator/tiers.h"
#include "simulator/trace_driver.h"

namespace verbatim {

// The results of an engine run on some executor; its simulation makes the same decisions.
struct RecordedRun {
    std::vector<int64_t> elapsed_ns;            // per step
    std::vector<std::vector<TokenId>> answers;  // per row; as far as drawn
};

struct SimulationConfig {
    EngineConfig engine;
    Busy busy = Busy::kWait;
    bool use_cache = true;  // false: nothing is reused
    // The clients' max_tokens; none: the trace's longest answer. Limited by the model's context.
    std::optional<int64_t> max_tokens;
    // With windows of engine.scheduler.max_window positions: drafts per million that are right.
    int32_t right_drafts_ppm = 700'000;
    TiersConfig tiers;                      // behind the engine's memory; with `recorded`, none
    const RecordedRun* recorded = nullptr;  // borrowed: requests follow the trace, answers and times follow the record
    bool digest_plans = false;              // SimulationResult::decisions includes every plan and token
    bool record_steps = false;              // fill in SimulationResult::steps
    // Merges equal steps into one call where no plan is observed: the result is the same.
    bool merge_equal_steps = true;
};

// A step that computed at least one token.
struct StepSample {
    int64_t end_ns = 0;
    int64_t elapsed_ns = 0;
    int32_t num_sequences = 0;
    int32_t num_decodes = 0;
    int64_t num_tokens = 0;
    int32_t num_waiting = 0;
    int32_t used_blocks = 0;
    int32_t used_state_rows = 0;
    int64_t preemptions = 0;  // so far
    friend bool operator==(const StepSample&, const StepSample&) = default;
};

// Tokens of the trace's longest answer; a row without a length gets the engine's default.
[[nodiscard]] int64_t longest_answer(const traces::Trace& trace, const EngineConfig& engine);

struct SimulationResult {
    int64_t requests = 0;  // rows of the trace that are requests
    DriverReport driver;
    EngineStats stats;
    Price price;            // of all steps
    int64_t num_plans = 0;  // merged steps have none
    int32_t peak_blocks = 0;
    int32_t peak_state_rows = 0;
    std::vector<StepSample> steps;
    RestoreCounts restores;
    std::vector<TierCounts> tiers;
    Digest decisions;  // of every event: what was attached, published, evicted, preempted, and in which step
    Digest digest;     // of the whole result
};

// Borrows all arguments. `progress(finished rows)` is called after every step.
Result<SimulationResult> simulate(const SimulationConfig& config, const traces::Trace& trace, CostModel& cost,
                                  int32_t vocab_size, EvictionPolicy& policy,
                                  const std::function<void(int64_t)>& progress = {});

}  // namespace verbatim
