#include "tools/fidelity/fidelity.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/engine.h"
#include "engine/timed_executor.h"
#include "files/progress_bar.h"
#include "kernels/executors/executor_choice.h"
#include "reference/loader/model_choice.h"
#include "simulator/cost_executor.h"
#include "simulator/metrics.h"
#include "simulator/model_shape.h"
#include "simulator/step_table.h"
#include "simulator/trace_driver.h"
#include "tools/program/cli.h"
#include "traces/requests.h"

namespace verbatim::tools {

using namespace executors;
namespace {

constexpr int32_t kBlockSize = 16;
constexpr double kAtOnce = 1e6;  // times as fast as recorded

// Tells the cost executor what every answer's length is; the requests say it too, to both sides alike.
class Lengths final : public DriverHooks {
public:
    Lengths(const traces::Trace& trace, CostExecutor& executor, int64_t default_tokens)
        : trace_(trace), executor_(executor), default_tokens_(default_tokens) {}
    void prepare(traces::RowIndex, ChatRequest&) override {}
    void accepted(traces::RowIndex row, RequestId request) override {
        const int64_t tokens = trace_.row(row).max_tokens;
        executor_.expect_answer(request, tokens >= 0 ? tokens : default_tokens_);
    }
    void stepped(int64_t) override {}

private:
    const traces::Trace& trace_;
    CostExecutor& executor_;
    int64_t default_tokens_;
};

EngineConfig engine_config(const FidelityConfig& config, const reference::ModelGeometry& geometry) {
    EngineConfig engine;
    engine.cache = cache_config(
        geometry, {.block_size = kBlockSize, .num_blocks = config.num_blocks, .num_state_rows = config.num_state_rows});
    engine.scheduler.step_tokens = config.step_tokens;
    engine.max_model_len = config.max_context;
    engine.seed = config.seed;
    return engine;
}

RunFigures figures_of(const DriverReport& report) {
    const Metrics metrics = metrics_of(report.times, kBlockSize, {});
    double tokens = 0;
    for (const RowTimes& row : report.times) tokens += static_cast<double>(row.output_tokens);
    const double seconds = static_cast<double>(report.virtual_ns) / 1e9;
    return {.e2e_p50 = metrics.e2e.p50,
            .e2e_p95 = metrics.e2e.p95,
            .ttft_p50 = metrics.ttft.p50,
            .ttft_p95 = metrics.ttft.p95,
            .tpot_p50 = metrics.tpot.p50,
            .tpot_p95 = metrics.tpot.p95,
            .tokens_per_s = seconds > 0 ? tokens / seconds : 0};
}

Result<DriverReport> drive(const FidelityConfig& config, const reference::Model& model, const traces::Trace& trace,
                           Executor& executor, CostExecutor* costs) {
    const EngineConfig settings = engine_config(config, reference::geometry(model.config));
    RETURN_IF_ERROR(validate(settings));
    TokenStore store(model.config.vocab_size);
    LruEviction policy;
    RecorderList nobody({});
    Engine engine(settings, executor, policy, store, nobody);
    ASSIGN_OR_RETURN(auto requests, traces::RequestMaker::create(trace, store));
    std::unique_ptr<Lengths> lengths;
    if (costs != nullptr) lengths = std::make_unique<Lengths>(trace, *costs, settings.default_max_tokens);
    TraceDriver driver({.step_ns = 0, .hooks = lengths.get()}, trace, requests, engine, store);
    return driver.run();
}

Result<DriverReport> run_simulated(const FidelityConfig& config, const reference::Model& model, const Device& device,
                                   const traces::Trace& trace) {
    StepTableCost cost(device.steps, ExpertReads(shape_of(config.model, model.config), device, {.seed = config.seed}));
    CostExecutor executor(&cost, model.config.vocab_size);
    return drive(config, model, trace, executor, &executor);
}

Result<DriverReport> run_real(const FidelityConfig& config, const reference::Model& model, const traces::Trace& trace) {
    const ExecutorOptions options{
        .pools = {.block_size = kBlockSize, .num_blocks = config.num_blocks, .num_state_rows = config.num_state_rows},
        .num_threads = config.num_threads,
        .seed = config.seed};
    ASSIGN_OR_RETURN(const ChosenExecutor chosen, choose_executor(config.executor, options, model));
    const std::unique_ptr<Clock> clock = clock_of(config.time);
    TimedExecutor executor(*chosen.executor, *clock);
    return drive(config, model, trace, executor, nullptr);
}

Result<traces::Trace> read_at(const FidelityConfig& config, double rate_scale) {
    traces::ReadOptions read = config.read;
    read.rate_scale = rate_scale;
    ASSIGN_OR_RETURN(traces::ReadTrace trace, traces::read_trace(config.trace, read));
    return std::move(trace.trace);
}

int64_t num_served(const DriverReport& report) {
    return std::ranges::count_if(report.times, [](const RowTimes& row) { return is_answered(row); });
}

// Requests per second as they were recorded; 0: all come at once.
double recorded_rate(const traces::Trace& trace) {
    int64_t last_ns = 0;
    for (const traces::Row& row : trace.rows) last_ns = std::max(last_ns, row.arrival_ns);
    if (last_ns == 0) return 0;
    return static_cast<double>(trace.rows.size()) / (static_cast<double>(last_ns) / 1e9);
}

}  // namespace

Result<Fidelity> measure_fidelity(const FidelityConfig& config, const Device& device) {
    if (device.steps.empty() || device.steps.model != config.model) {
        return error("--device {}: has no steps of {}: make one with `verbatim calibrate --model {}`", device.name,
                     config.model, config.model);
    }
    ASSIGN_OR_RETURN(const reference::Model model, reference::choose_model(config.model, config.seed));
    if (config.max_context > model.config.max_position_embeddings)
        return error("--context {}: {} has {} positions", config.max_context, config.model,
                     model.config.max_position_embeddings);
    RETURN_IF_ERROR(fit_into_memory({kBlockSize, config.num_blocks, config.num_state_rows},
                                    unit_bytes(reference::geometry(model.config), kBlockSize)));
    Fidelity result{.config = config};
    ASSIGN_OR_RETURN(const traces::Trace recorded, read_at(config, 1));
    ASSIGN_OR_RETURN(const traces::Trace at_once, read_at(config, kAtOnce));
    ASSIGN_OR_RETURN(const DriverReport saturated, run_simulated(config, model, device, at_once));
    if (saturated.virtual_ns == 0 || num_served(saturated) == 0)
        return error("{}: none of its {} rows can be answered in {} tokens", config.trace, recorded.rows.size(),
                     config.max_context);
    result.capacity = static_cast<double>(num_served(saturated)) / (static_cast<double>(saturated.virtual_ns) / 1e9);
    if (recorded_rate(recorded) == 0)
        return error("{}: its {} rows come all at once, and have no load: read more of them with --limit", config.trace,
                     recorded.rows.size());
    std::vector<traces::Trace> traces;
    for (const double load : config.loads) {
        LoadFidelity& one = result.loads.emplace_back();
        one.load = load;
        one.rate = load * result.capacity;
        ASSIGN_OR_RETURN(traces.emplace_back(), read_at(config, one.rate / recorded_rate(recorded)));
    }
    result.loads.emplace_back();
    traces.push_back(at_once);
    for (size_t i = 0; i < traces.size(); ++i) {
        ASSIGN_OR_RETURN(const DriverReport report, run_simulated(config, model, device, traces[i]));
        result.loads[i].simulated = figures_of(report);
        result.loads[i].num_requests = num_served(report);
    }
    ProgressBar progress(fmt::format("fidelity, {}", config.model),
                         static_cast<uint64_t>(config.rounds) * traces.size());
    uint64_t done = 0;
    for (int32_t round = 0; round < config.rounds; ++round) {
        for (size_t i = 0; i < traces.size(); ++i) {
            ASSIGN_OR_RETURN(const DriverReport report, run_real(config, model, traces[i]));
            if (num_served(report) != result.loads[i].num_requests)
                return error("the engine answered {} requests, the simulation {}", num_served(report),
                             result.loads[i].num_requests);
            result.loads[i].real.push_back(figures_of(report));
            progress.update(++done);
        }
    }
    return result;
}

}  // namespace verbatim::tools
