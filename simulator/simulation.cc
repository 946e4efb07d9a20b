#include "simulator/simulation.h"

#include <utility>

#include "simulator/simulated_engine.h"
#include "traces/requests.h"

namespace verbatim {

Result<SimulationResult> simulate(const SimulationConfig& config, const traces::Trace& trace, CostModel& cost,
                                  int32_t vocab_size, EvictionPolicy& policy,
                                  const std::function<void(int64_t)>& progress) {
    const EngineConfig settings = engine_settings(config, trace);
    RETURN_IF_ERROR(validate(settings));
    TokenStore store(vocab_size);
    ASSIGN_OR_RETURN(auto requests, traces::RequestMaker::create(trace, store));
    SimulatedEngine simulated({config, settings, trace, requests, cost, store}, policy);
    TraceDriver driver({.step_ns = 0, .hooks = &simulated.hooks(), .busy = config.busy}, trace, requests,
                       simulated.engine(), store);
    ASSIGN_OR_RETURN(DriverReport report, driver.run(progress));
    SimulationResult result = simulated.take_result(report.times);
    result.driver = std::move(report);
    result.requests = traces::num_requests(trace);
    result.digest = digest_of(result);
    return result;
}

}  // namespace verbatim
