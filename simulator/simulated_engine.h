// simulator/simulated_engine.h: owns an engine whose executor is a cost model, and what a driver needs to give it a
// trace's rows: clients ask for answers without their lengths, and the executor ends them where the trace says.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/engine.h"
#include "simulator/cost_drafter.h"
#include "simulator/cost_executor.h"
#include "simulator/restores.h"
#include "simulator/simulation.h"
#include "simulator/trace_driver.h"
#include "traces/requests.h"

namespace verbatim {

enum class EngineRole : uint8_t {
    kWhole,    // prompts and answers
    kPrompts,  // prompts, whose heads go to another engine
    kAnswers,  // answers, after heads that other engines computed
};

// What the engines of one run share; borrowed.
struct SharedByEngines {
    const SimulationConfig& config;
    const EngineConfig& settings;
    const traces::Trace& trace;
    traces::RequestMaker& requests;
    CostModel& cost;
    TokenStore& store;
};

class SimulatedEngine {
public:
    // Borrows `shared` and `policy`. `number`: among the run's engines, from 0.
    SimulatedEngine(const SharedByEngines& shared, EvictionPolicy& policy, uint64_t number = 0,
                    EngineRole role = EngineRole::kWhole);
    SimulatedEngine(const SimulatedEngine&) = delete;
    SimulatedEngine& operator=(const SimulatedEngine&) = delete;
    ~SimulatedEngine();

    [[nodiscard]] Engine& engine() { return engine_; }
    [[nodiscard]] const Engine& engine() const { return engine_; }
    [[nodiscard]] DriverHooks& hooks();
    // Tokens of the row's prompt that the engine would not compute, if the row came now.
    [[nodiscard]] int64_t num_held(traces::ConversationIndex conversation, const TokenSeq& prompt) const;
    // Heads that came from another engine, and found room; and those that found none.
    [[nodiscard]] int64_t num_received() const;
    [[nodiscard]] int64_t num_without_room() const;
    // Everything of the result that is this engine's: all but the driver's report, the requests and the digest. Adds
    // the tokens that tiers restored to `times`, per row.
    [[nodiscard]] SimulationResult take_result(std::vector<RowTimes>& times);

private:
    class Hooks;
    class EventDigest;
    SharedByEngines shared_;
    CostExecutor executor_;
    DigestRecorder all_;
    std::unique_ptr<EventDigest> events_;
    Engine engine_;
    CostDrafter drafter_;
    Restores restores_;
    std::unique_ptr<Hooks> hooks_;
};

// The configuration of a run's engines: an answer's default length is the clients' max_tokens.
[[nodiscard]] EngineConfig engine_settings(const SimulationConfig& config, const traces::Trace& trace);

// Of everything that a run decided, and of every row's times.
[[nodiscard]] Digest digest_of(const SimulationResult& result);

}  // namespace verbatim
