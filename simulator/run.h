// simulator/run.h: a trace, a model, a device and a memory budget make a simulation.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/pool_sizes.h"
#include "engine/scheduler/scheduler.h"
#include "simulator/cluster.h"
#include "simulator/deployment.h"
#include "simulator/device.h"
#include "simulator/eviction_policies.h"
#include "simulator/kernel_times.h"
#include "simulator/model_shape.h"
#include "simulator/replicas.h"
#include "simulator/rival_cache.h"
#include "simulator/simulation.h"
#include "simulator/step_cost.h"
#include "simulator/tiers.h"
#include "traces/trace.h"

namespace verbatim {

// How state is kept for reuse.
enum class CacheMode : uint8_t {
    kExact,         // heads by conversation
    kPrefix,        // heads by conversation, and by the longest committed prefix
    kAttention,     // full blocks of any prefix, as if there were no state to keep
    kBlockAligned,  // one inflated block for all layers, state at its multiples only (simulator/aligned_pages.h)
    kNone,          // nothing is reused
    // Other engines, without time (simulator/rival_cache.h).
    kVllmAlign,
    kSglangRadix,
    kSglangRadixPools,
    kSglangRadixNoBuffer,
    kMarconi,
};
[[nodiscard]] std::optional<Rival> rival_of(CacheMode mode);

// Where prices come from.
enum class CostChoice : uint8_t {
    kTables,    // measured kernels, where the device has them, and the roofline for the rest
    kRoofline,  // the roofline alone
};

struct SimulateConfig {
    CostChoice cost = CostChoice::kTables;
    CacheMode cache_mode = CacheMode::kPrefix;
    std::optional<EvictionChoice> eviction;  // none: by value with kPrefix, lru with other modes
    AdmissionOrder admission = AdmissionOrder::kArrival;
    int32_t max_wait_steps = SchedulerConfig().max_wait_steps;  // of kFewestTokens
    Busy busy = Busy::kWait;
    std::optional<int64_t> memory_bytes;  // of the device, for everything; none: 90 % of it
    std::optional<int64_t> kv_bytes;      // of the pool, or the most of one budget
    std::optional<int64_t> state_bytes;
    std::optional<int64_t> max_context;
    std::optional<int64_t> max_tokens;
    std::optional<int64_t> step_overhead_ns;
    int64_t state_value_bytes = 4;  // of recurrent states
    WeightFormat weights = WeightFormat::kBf16;
    int32_t kv_value_bytes = 2;  // of K and V
    Parallelism parallelism;     // of each replica
    int32_t block_size = 16;
    int32_t step_tokens = 8192;
    int32_t max_num_sequences = 256;
    int32_t max_window = 1;         // positions that draw in one step: the last known token's and drafts'
    double draft_acceptance = 0.7;  // of drafts that all before are right, the share that is
    double expert_skew = 0;         // experts are chosen as their rank to the power of minus this
    int32_t num_replicas = 1;       // each on separate devices
    Route route = Route::kRoundRobin;
    std::optional<PrefillApart> apart;         // replicas of prompts and of answers, instead of num_replicas
    std::optional<AutoscaleConfig> autoscale;  // so many replicas as a rule wants, instead of num_replicas
    uint64_t seed = 0;
    std::vector<TierConfig> tiers;  // memory behind the device's, for evicted heads
    TierEviction tier_eviction = TierEviction::kValue;
    RestorePolicy restore = RestorePolicy::kAuto;
    bool head_bound = false;  // with --cache-only: compute the bound of HeadBound, too
    bool record_steps = false;
    KernelFactors factors;         // of the run itself
    bool bounds_rooflines = true;  // also run with the fastest and the slowest rooflines, where they matter
};

[[nodiscard]] EvictionChoice eviction_of(const SimulateConfig& config);
[[nodiscard]] bool shares_budget(const SimulateConfig& config);  // blocks and rows in one budget
// GPUs at once, at most.
[[nodiscard]] int32_t most_gpus(const SimulateConfig& config);
// Error: flags that exclude each other.
[[nodiscard]] Status validate(const SimulateConfig& config);

// Where the device's memory goes.
struct MemoryPlan {
    PoolSizes pools;
    int64_t total_bytes = 0;
    int64_t weights_bytes = 0;
    int64_t workspace_bytes = 0;
    int64_t cache_bytes = 0;  // of blocks and rows together
    int64_t kv_bytes = 0;     // the most of either
    int64_t state_bytes = 0;
    int64_t block_bytes = 0;
    int64_t row_bytes = 0;
};

// What follows from what is not known of prices: the run with all kernels that have a roofline alone as fast, and as
// slow, as the device file says that they may be; and with weights of fewer bytes all kernels as published runs say
// (format_error).
struct RooflineBounds {
    SimulationResult fast;
    SimulationResult slow;
    KernelFactors fast_factors;
    KernelFactors slow_factors;
};
// Of a configuration on a device.
struct BoundFactors {
    KernelFactors fast;
    KernelFactors slow;
};
[[nodiscard]] BoundFactors bound_factors(const SimulateConfig& config, const Device& device);
// Rooflines of a smaller share of the steps' time are not bounded.
inline constexpr double kLeastBoundedShare = 0.02;
struct SimulateRun;
// Whether the run would be another one at its bounds.
[[nodiscard]] bool is_bounded(const SimulateRun& run);

struct SimulateRun {
    std::string trace;
    ModelShape model;  // as it is deployed
    Device device;
    SimulateConfig config;
    MemoryPlan memory;
    int64_t max_model_len = 0;
    SimulationResult result;
    std::optional<RooflineBounds> bounds;
    std::vector<ReplicaSummary> replicas;  // of several
    std::vector<int32_t> replica_of_row;   // of several
    TransferCounts transfers;
    double gpu_s = 0;       // of all GPUs, from when each is there until it goes
    int32_t peak_gpus = 0;  // at once
    double wall_s = 0;
    int64_t peak_rss_bytes = 0;
};

// The block and the bytes of a pool's units that the cache mode has.
struct CacheUnits {
    int32_t block_size = 0;  // tokens
    int64_t block_bytes = 0;
    int64_t row_bytes = 0;
};
Result<CacheUnits> cache_units(const SimulateConfig& config, const ModelShape& model);

// One GPU's part of the model, in the number formats that the configuration asks for.
ModelShape deployed_shape(const SimulateConfig& config, ModelShape model);
// What deployed_shape() and then plan_memory() give. Errors: those of check_parallelism() and plan_memory().
Result<MemoryPlan> plan_deployment(const SimulateConfig& config, const ModelShape& model, const Device& device);

// Weights and workspace come off `memory_bytes`; the rest is one budget, or is split between the pools. Error: nothing
// is left.
Result<MemoryPlan> plan_memory(const SimulateConfig& config, const ModelShape& model, const Device& device);

// The device's kernels by its tables, or by the roofline.
Result<std::unique_ptr<KernelTimes>> kernel_times(CostChoice cost, const Device& device);

// Whole steps as they were measured, where the device has them, or the sum of kernels. Borrows `kernels`. Error: steps
// of another model, or of other states.
Result<std::unique_ptr<CostModel>> cost_model(const SimulateConfig& config, const ModelShape& model,
                                              const Device& device, const KernelTimes& kernels);

// What the engine is given.
EngineConfig engine_config(const SimulateConfig& config, const ModelShape& model, const MemoryPlan& memory);
HeadWorth worth_of(const ModelShape& model);
// The tiers behind an engine of this memory. The price of computing is not among it.
TiersConfig tiers_of(const SimulateConfig& config, const ModelShape& model, const MemoryPlan& memory);
int64_t peak_resident_bytes();

using Progress = std::function<void(int64_t rows_over)>;

// Error: a budget or a trace that the model cannot take.
Result<SimulateRun> run_simulate(const SimulateConfig& config, const ModelShape& model, const Device& device,
                                 const std::string& trace_name, const traces::Trace& trace,
                                 const Progress& progress = {});

}  // namespace verbatim
