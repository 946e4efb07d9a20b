#include "simulator/run.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>
#include <memory>
#include <utility>

#include "engine/base/byte_count.h"
#include "engine/cache/budget.h"
#include "simulator/aligned_pages.h"
#include "simulator/choice_names.h"
#include "simulator/deployment.h"
#include "simulator/kernel_tables.h"
#include "simulator/model_shape.h"
#include "simulator/sharding.h"
#include "simulator/step_table.h"
#include "simulator/value_rule.h"

namespace verbatim {
namespace {

LookupMode lookup_of(CacheMode mode) {
    switch (mode) {
        case CacheMode::kExact:
        case CacheMode::kNone: return LookupMode::kConversation;
        case CacheMode::kPrefix: return LookupMode::kPrefix;
        case CacheMode::kAttention:
        case CacheMode::kBlockAligned: return LookupMode::kBlocks;
        default: break;
    }
    return LookupMode::kConversation;
}

}  // namespace

EvictionChoice eviction_of(const SimulateConfig& config) {
    const auto usual = config.cache_mode == CacheMode::kPrefix ? EvictionChoice::kValue : EvictionChoice::kLru;
    return config.eviction.value_or(usual);
}

// Ranks by use need a pool for each kind of memory.
bool shares_budget(const SimulateConfig& config) {
    return rival_of(config.cache_mode).has_value() || eviction_of(config) == EvictionChoice::kValue;
}

int32_t most_gpus(const SimulateConfig& config) {
    int32_t num_replicas = config.num_replicas;
    if (config.apart) num_replicas = config.apart->num_prefill + config.apart->num_decode;
    if (config.autoscale) num_replicas = config.autoscale->most;
    return num_replicas * config.parallelism.num_gpus();
}

namespace {

Status validate_cluster(const SimulateConfig& config) {
    const bool is_per_request_of_several = config.num_replicas > 1 && is_per_request(config.route);
    if (config.busy != Busy::kWait && (config.apart || config.autoscale || is_per_request_of_several)) {
        return error(
            "--busy: a replica refuses a turn while it runs the one before, and here they can be at different "
            "replicas: wanted wait");
    }
    if (!config.apart && !config.autoscale) return {};
    const char* flag = config.apart ? "--prefill-replicas" : "--autoscale";
    if (config.apart && config.autoscale) return error("--prefill-replicas and --autoscale: leave one out");
    if (config.num_replicas > 1) return error("--replicas and {}: leave one out", flag);
    if (config.route == Route::kTrace) return error("--route trace: of a fixed number of replicas, got {}", flag);
    if (config.autoscale && !is_per_request(config.route)) {
        return error(
            "{}: with --route round-robin and conversation a conversation stays where it began, and a replica that "
            "comes later gets none of them: wanted least-loaded or prefix-aware",
            flag);
    }
    const bool has_heads = config.cache_mode == CacheMode::kPrefix || config.cache_mode == CacheMode::kExact;
    if (config.apart && !has_heads) {
        return error(
            "{}: a prompt goes to another replica as a head, and --cache-mode {} has none: wanted prefix or exact",
            flag, name_of(config.cache_mode));
    }
    if (config.apart && !config.tiers.empty())
        return error("{}: is simulated without memory behind the device's: leave --host-memory and --disk out", flag);
    return {};
}

}  // namespace

Status validate(const SimulateConfig& config) {
    RETURN_IF_ERROR(validate_cluster(config));
    const bool is_rival = rival_of(config.cache_mode).has_value();
    if (is_rival && config.eviction)
        return error("--evict: --cache-mode {} has a policy of its own: leave --evict out", name_of(config.cache_mode));
    if (is_rival && (config.kv_bytes || config.state_bytes)) {
        return error("--kv-bytes and --state-bytes: --cache-mode {} divides memory itself: leave them out",
                     name_of(config.cache_mode));
    }
    const bool has_heads = config.cache_mode == CacheMode::kPrefix || config.cache_mode == CacheMode::kExact;
    if (!config.tiers.empty() && !has_heads) {
        return error("--host-memory and --disk: keep heads, and --cache-mode {} has none: wanted prefix or exact",
                     name_of(config.cache_mode));
    }
    if (config.eviction == EvictionChoice::kValue && config.cache_mode != CacheMode::kPrefix) {
        return error("--evict value: needs --cache-mode prefix, got {}: name another policy, such as lru",
                     name_of(config.cache_mode));
    }
    return {};
}

std::optional<Rival> rival_of(CacheMode mode) {
    switch (mode) {
        case CacheMode::kVllmAlign: return Rival::kVllmAlign;
        case CacheMode::kSglangRadix: return Rival::kSglangRadix;
        case CacheMode::kSglangRadixPools: return Rival::kSglangRadixPools;
        case CacheMode::kSglangRadixNoBuffer: return Rival::kSglangRadixNoBuffer;
        case CacheMode::kMarconi: return Rival::kMarconi;
        default: return std::nullopt;
    }
}

int64_t peak_resident_bytes() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss * 1024;
}

HeadWorth worth_of(const ModelShape& model) {
    const ModelFlops flops = flops_of(model);
    return {model.kv_bytes_per_token, model.state_bytes_per_row, flops.per_token, flops.per_pair};
}

EngineConfig engine_config(const SimulateConfig& config, const ModelShape& model, const MemoryPlan& memory) {
    EngineConfig engine;
    engine.cache.has_kv = memory.block_bytes > 0;
    engine.cache.has_state = memory.row_bytes > 0;
    engine.cache.pools = memory.pools;
    if (shares_budget(config)) {
        engine.cache.budget_bytes = memory.cache_bytes;
        engine.cache.kv_block_bytes = memory.block_bytes;
        engine.cache.state_row_bytes = memory.row_bytes;
        set_value_rule(engine.cache, model);
    }
    engine.cache.lookup = lookup_of(config.cache_mode);
    if (engine.cache.lookup == LookupMode::kBlocks) {
        engine.cache.keep_turn_heads = engine.cache.has_state ? 0 : 1;
        engine.scheduler.max_checkpoints = 0;
    }
    engine.scheduler.step_tokens = config.step_tokens;
    engine.scheduler.max_num_sequences = config.max_num_sequences;
    engine.scheduler.max_window = config.max_window;
    engine.scheduler.admission = config.admission;
    engine.scheduler.max_wait_steps = config.max_wait_steps;
    engine.max_model_len = config.max_context.value_or(model.max_positions);
    engine.seed = config.seed;
    return engine;
}

TiersConfig tiers_of(const SimulateConfig& config, const ModelShape& model, const MemoryPlan& memory) {
    TiersConfig tiers{.tiers = config.tiers, .eviction = config.tier_eviction, .restore = config.restore};
    tiers.cache = engine_config(config, model, memory).cache;
    tiers.cache.kv_block_bytes = memory.block_bytes;
    tiers.cache.state_row_bytes = memory.row_bytes;
    set_value_rule(tiers.cache, model);
    return tiers;
}

Result<std::unique_ptr<KernelTimes>> kernel_times(CostChoice cost, const Device& device) {
    if (cost == CostChoice::kRoofline || device.tables.empty()) return std::make_unique<RooflineTimes>(device);
    ASSIGN_OR_RETURN(TableTimes tables, TableTimes::read(device.tables, device));
    return std::make_unique<TableTimes>(std::move(tables));
}

Result<CacheUnits> cache_units(const SimulateConfig& config, const ModelShape& model) {
    CacheUnits units{config.block_size, model.kv_bytes_per_token * config.block_size, model.state_bytes_per_row};
    if (config.cache_mode == CacheMode::kAttention) units.row_bytes = 0;
    const bool needs_kv = config.cache_mode == CacheMode::kAttention || config.cache_mode == CacheMode::kBlockAligned ||
                          config.cache_mode == CacheMode::kVllmAlign;
    if (needs_kv && model.kv_bytes_per_token == 0)
        return error("--cache-mode: {} has no attention layers, and this mode caches nothing else", model.name);
    if (config.cache_mode != CacheMode::kBlockAligned) return units;
    const auto pages = aligned_pages(model, {config.block_size, config.state_value_bytes});
    return CacheUnits{pages->block_tokens, pages->kv_page_bytes, pages->state_page_bytes};
}

Result<MemoryPlan> plan_memory(const SimulateConfig& config, const ModelShape& model, const Device& device) {
    MemoryPlan plan;
    plan.total_bytes = config.memory_bytes.value_or(device.memory_bytes / 10 * 9);
    plan.weights_bytes = model.weight_bytes;
    plan.workspace_bytes = device.workspace_bytes + std::max<int64_t>(config.step_tokens - kWorkspaceTokens, 0) *
                                                        model.activation_bytes_per_token;
    if (plan.total_bytes > device.memory_bytes) {
        return error("--memory: got {}, but {} has {}", format_bytes(plan.total_bytes), device.name,
                     format_bytes(device.memory_bytes));
    }
    const int64_t left = plan.total_bytes - plan.weights_bytes - plan.workspace_bytes;
    if (left <= 0) {
        return error(
            "--memory: of {}, the weights of {} take {} and the workspace of {} takes {}: nothing is left for "
            "the cache",
            format_bytes(plan.total_bytes), model.name, format_bytes(plan.weights_bytes), device.name,
            format_bytes(plan.workspace_bytes));
    }
    const bool shares = shares_budget(config);
    const int64_t kv_bytes = config.kv_bytes.value_or(0);
    const int64_t state_bytes = config.state_bytes.value_or(0);
    if (std::max(kv_bytes, state_bytes) > left || (!shares && kv_bytes > left - state_bytes)) {
        return error("--kv-bytes and --state-bytes: got {} and {}, but {} are left beside weights and workspace",
                     format_bytes(kv_bytes), format_bytes(state_bytes), format_bytes(left));
    }
    ASSIGN_OR_RETURN(const CacheUnits units, cache_units(config, model));
    plan.block_bytes = units.block_bytes;
    plan.row_bytes = units.row_bytes;
    plan.cache_bytes = left;
    const auto size_pools = shares ? share_budget : split_budget;
    ASSIGN_OR_RETURN(plan.pools, size_pools({left, config.kv_bytes, config.state_bytes},
                                            {plan.block_bytes, plan.row_bytes, units.block_size}));
    plan.kv_bytes = plan.pools.num_blocks * plan.block_bytes;
    plan.state_bytes = plan.pools.num_state_rows * plan.row_bytes;
    return plan;
}

Result<std::unique_ptr<CostModel>> cost_model(const SimulateConfig& config, const ModelShape& model,
                                              const Device& device, const KernelTimes& kernels) {
    const ExpertChance chance{config.expert_skew, config.seed};
    if (device.steps.empty() || config.cost == CostChoice::kRoofline)
        return std::make_unique<StepCost>(model, device, kernels, chance);
    if (model.state_value_bytes != 4) {
        return error("--state-dtype: the steps of --device {} were timed with float32 states: leave it out",
                     device.name);
    }
    if (!model.stored.empty())
        return error("--model {}: its weights are quantised, the steps of --device {} were timed with bf16 weights",
                     model.name, device.name);
    if (model.weight_value_bytes != 2)
        return error("--weights: the steps of --device {} were timed with bf16 weights: leave it out", device.name);
    if (config.kv_value_bytes != 2)
        return error("--kv-dtype: the steps of --device {} were timed with bf16 KV: leave it out", device.name);
    if (config.parallelism != Parallelism{})
        return error("--tp, --ep and --pp: the steps of --device {} were timed on one device: leave them out",
                     device.name);
    if (device.steps.model == model.name)
        return std::make_unique<StepTableCost>(device.steps, ExpertReads(model, device, chance));
    return error("--device {}: its steps are those of {}, got --model {}: calibrate it for that model", device.name,
                 device.steps.model, model.name);
}

ModelShape deployed_shape(const SimulateConfig& config, ModelShape model) {
    model = with_state_values(std::move(model), config.state_value_bytes);
    model = with_kv_values(with_weight_format(std::move(model), config.weights), config.kv_value_bytes);
    return sharded(std::move(model), config.parallelism);
}

Result<MemoryPlan> plan_deployment(const SimulateConfig& config, const ModelShape& model, const Device& device) {
    RETURN_IF_ERROR(check_parallelism(model, device, config.parallelism));
    return plan_memory(config, deployed_shape(config, model), device);
}

namespace {

SimulationConfig simulation_of(const SimulateRun& run) {
    SimulationConfig simulation;
    simulation.engine = engine_config(run.config, run.model, run.memory);
    simulation.busy = run.config.busy;
    simulation.use_cache = run.config.cache_mode != CacheMode::kNone;
    simulation.max_tokens = run.config.max_tokens;
    simulation.tiers = tiers_of(run.config, run.model, run.memory);
    simulation.record_steps = run.config.record_steps;
    simulation.right_drafts_ppm = static_cast<int32_t>(std::lround(run.config.draft_acceptance * 1e6));
    return simulation;
}

// One run, where kernels take so many times as long. Kernel tables are not thread-safe: each run reads separate ones.
Result<ReplicatedResult> priced_run(const SimulateRun& run, const SimulationConfig& simulation,
                                    const traces::Trace& trace, const KernelFactors& factors,
                                    const Progress& progress) {
    const SimulateConfig& config = run.config;
    ASSIGN_OR_RETURN(const auto kernels, kernel_times(config.cost, run.device));
    ASSIGN_OR_RETURN(const auto prices, cost_model(config, run.model, run.device, *kernels));
    ScaledKernels cost(*prices, factors);
    const auto policy = [&] { return make_eviction_policy(eviction_of(config), worth_of(run.model)); };
    if (config.apart || config.autoscale || (config.num_replicas > 1 && is_per_request(config.route))) {
        const ClusterConfig cluster{.route = config.route,
                                    .num_replicas = config.num_replicas,
                                    .apart = config.apart,
                                    .autoscale = config.autoscale,
                                    .block_bytes = run.memory.block_bytes,
                                    .row_bytes = run.memory.row_bytes};
        return simulate_cluster(cluster, simulation, trace, cost, run.model.vocab_size, policy, progress);
    }
    if (config.num_replicas == 1) {
        if (config.route == Route::kTrace) RETURN_IF_ERROR(check_named_replicas(trace, 1));
        const auto one = policy();
        ReplicatedResult alone;
        ASSIGN_OR_RETURN(alone.whole, simulate(simulation, trace, cost, run.model.vocab_size, *one, progress));
        return alone;
    }
    const Router router = config.route == Route::kConversation ? route_by_conversation : route_in_turns;
    return simulate_replicas(simulation, trace, cost, run.model.vocab_size, policy, config.num_replicas, router,
                             progress);
}

// Replicas that do not come and go are there for the whole run.
double gpu_seconds(const SimulateRun& run) {
    double ns = static_cast<double>(run.config.num_replicas) * static_cast<double>(run.result.driver.virtual_ns);
    if (run.config.apart || run.config.autoscale) {
        ns = 0;
        for (const ReplicaSummary& replica : run.replicas)
            ns += static_cast<double>(replica.virtual_ns - replica.begin_ns);
    }
    return ns * 1e-9 * run.config.parallelism.num_gpus();
}

// A replica that begins finds those that have begun before and are still there.
int32_t most_replicas_at_once(const std::vector<ReplicaSummary>& replicas) {
    std::ptrdiff_t most = 0;
    for (const ReplicaSummary& begins : replicas) {
        most = std::max(most, std::ranges::count_if(replicas, [&](const ReplicaSummary& other) {
                            return other.begin_ns <= begins.begin_ns && begins.begin_ns < other.virtual_ns;
                        }));
    }
    return static_cast<int32_t>(most);
}

// Both bounds at once, on two threads.
Result<RooflineBounds> bounds_of(const SimulateRun& run, SimulationConfig simulation, const traces::Trace& trace) {
    simulation.record_steps = false;
    const BoundFactors factors = bound_factors(run.config, run.device);
    const auto bound = [&](const KernelFactors& one) { return priced_run(run, simulation, trace, one, {}); };
    auto fast = std::async(std::launch::async, bound, factors.fast);
    ASSIGN_OR_RETURN(ReplicatedResult slow, bound(factors.slow));
    ASSIGN_OR_RETURN(ReplicatedResult quick, fast.get());
    return RooflineBounds{std::move(quick.whole), std::move(slow.whole), factors.fast, factors.slow};
}

}  // namespace

BoundFactors bound_factors(const SimulateConfig& config, const Device& device) {
    const FormatError error = format_error(config.weights);
    return {{std::min(device.roofline_fast, error.fast), error.fast},
            {std::max(device.roofline_slow, error.slow), error.slow}};
}

bool is_bounded(const SimulateRun& run) {
    if (run.config.weights != WeightFormat::kBf16) return true;
    if (run.device.roofline_fast == run.device.roofline_slow) return false;
    const double total = run.result.price.total_ns();
    const double rooflines = run.result.price.ns[static_cast<size_t>(PriceSource::kRoofline)];
    return total > 0 && rooflines >= kLeastBoundedShare * total;
}

Result<SimulateRun> run_simulate(const SimulateConfig& config, const ModelShape& model, const Device& device,
                                 const std::string& trace_name, const traces::Trace& trace, const Progress& progress) {
    const auto begin = std::chrono::steady_clock::now();
    SimulateRun run{.trace = trace_name, .model = deployed_shape(config, model), .device = device, .config = config};
    if (config.step_overhead_ns) {
        run.device.step_overhead_ns = static_cast<double>(*config.step_overhead_ns);
        run.device.sequence_overhead_ns = 0;
    }
    ASSIGN_OR_RETURN(run.memory, plan_deployment(config, model, run.device));
    const SimulationConfig simulation = simulation_of(run);
    run.max_model_len = simulation.engine.max_model_len;
    ASSIGN_OR_RETURN(ReplicatedResult all, priced_run(run, simulation, trace, config.factors, progress));
    run.result = std::move(all.whole);
    run.replicas = std::move(all.replicas);
    run.replica_of_row = std::move(all.replica_of_row);
    run.transfers = all.transfers;
    run.gpu_s = gpu_seconds(run);
    run.peak_gpus = most_gpus(config);
    if (config.autoscale) run.peak_gpus = most_replicas_at_once(run.replicas) * config.parallelism.num_gpus();
    if (config.bounds_rooflines && is_bounded(run)) {
        ASSIGN_OR_RETURN(run.bounds, bounds_of(run, simulation, trace));
    }
    run.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    run.peak_rss_bytes = peak_resident_bytes();
    return run;
}

}  // namespace verbatim
