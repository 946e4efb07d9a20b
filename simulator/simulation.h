// simulator/simulation.h: one trace through the engine's own scheduler and cache, on one replica that a cost model
// stands for.
//
// Clients ask for answers without saying how long they will be; the trace knows, and the executor stops there. So every
// decision is the engine's own, and only durations are modelled.
//   S1  the same trace and configuration give the same result, byte for byte, on any machine and in any build
//   S2  every row has one outcome, and the outcomes add up to what the driver counts
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine/engine.h"
#include "simulator/cost_executor.h"
#include "simulator/trace_driver.h"

namespace verbatim {

// What a run of the engine on some executor did: its simulation takes the same decisions.
struct RecordedRun {
    std::vector<int64_t> elapsed_ns;            // per step
    std::vector<std::vector<TokenId>> answers;  // per row; as far as they were drawn
};

struct SimulationConfig {
    EngineConfig engine;
    Busy busy = Busy::kWait;
    bool use_cache = true;  // false: nothing is reused
    // What clients ask for at most; none: the trace's longest answer. Less where the model has less room.
    std::optional<int64_t> max_tokens;
    // Windows of engine.scheduler.max_window positions: so many of a million drafts are what will be drawn.
    int32_t right_drafts_ppm = 700'000;
    const RecordedRun* recorded = nullptr;  // borrowed: clients ask as the trace says, answers and times are these
    bool digest_plans = false;              // SimulationResult::decisions covers every plan and token, too
    bool record_steps = false;              // fill in SimulationResult::steps
    // Steps that are equal are taken without a plan for each, where nobody wants to see every plan: the result is the
    // same.
    bool merge_equal_steps = true;
};

// A step that computed something.
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

// Tokens of the trace's longest answer; a row that names none gets the engine's default.
[[nodiscard]] int64_t longest_answer(const traces::Trace& trace, const EngineConfig& engine);

struct SimulationResult {
    int64_t requests = 0;  // rows of the trace that are requests
    DriverReport driver;
    EngineStats stats;
    Price price;            // of all steps
    int64_t num_plans = 0;  // equal steps that were taken as one have none
    int32_t peak_blocks = 0;
    int32_t peak_state_rows = 0;
    std::vector<StepSample> steps;
    Digest decisions;  // of every event: what was attached, published, evicted, preempted, and in which step
    Digest digest;     // of all of this
};

// Borrows all of them. `progress(rows over)` is called after every step.
Result<SimulationResult> simulate(const SimulationConfig& config, const traces::Trace& trace, CostModel& cost,
                                  int32_t vocab_size, EvictionPolicy& policy,
                                  const std::function<void(int64_t)>& progress = {});

}  // namespace verbatim
