#include "simulator/cache_only.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>

#include "engine/base/byte_count.h"
#include "engine/base/digest.h"
#include "simulator/aligned_pages.h"
#include "simulator/cache_run.h"
#include "simulator/choice_names.h"
#include "simulator/model_shape.h"
#include "simulator/rival_cache.h"

namespace verbatim {
namespace {

HitRate rate_of(const traces::HitCount& count) {
    return {count.block_rate(), count.token_rate(), count.request_rate()};
}

void add_to(Digester& digester, const traces::HitCount& count) {
    for (const int64_t value :
         {count.requests, count.requests_hit, count.blocks, count.blocks_hit, count.tokens, count.tokens_hit}) {
        digester.add(value);
    }
}

// As run_cache rejects rows: those longer than the model's context, or than the empty cache. A rejected request keeps
// its place in the log, without tokens and blocks.
traces::BlockLog without_rejected(const traces::BlockLog& log, int64_t max_model_len, const PoolSizes& pools,
                                  int64_t& num_rejected) {
    traces::BlockLog kept{.block_tokens = log.block_tokens};
    for (size_t i = 0; i < log.prompt_tokens.size(); ++i) {
        const int64_t prompt = log.prompt_tokens[i];
        const int64_t output = log.output_tokens[i];
        const int64_t num_resident = prompt + std::max<int64_t>(output - 1, 0);
        const bool fits = prompt > 0 && prompt + output <= max_model_len &&
                          (num_resident + pools.block_size - 1) / pools.block_size <= pools.num_blocks;
        kept.prompt_tokens.push_back(fits ? prompt : 0);
        kept.output_tokens.push_back(fits ? output : 0);
        const auto begin = log.runs.begin() + static_cast<std::ptrdiff_t>(i == 0 ? 0 : log.run_ends[i - 1]);
        const auto end = log.runs.begin() + static_cast<std::ptrdiff_t>(log.run_ends[i]);
        if (fits) kept.runs.insert(kept.runs.end(), begin, end);
        kept.run_ends.push_back(kept.runs.size());
        num_rejected += fits ? 0 : 1;
    }
    return kept;
}

// By the trace's own blocks.
void run_blocks(const SimulateConfig& config, const ModelShape& model, const traces::BlockLog& recorded,
                CacheOnlyRun& run) {
    const traces::BlockLog log =
        without_rejected(recorded, config.max_context.value_or(model.max_positions), run.memory.pools, run.rejected);
    const int64_t block_bytes = run.memory.block_bytes / run.memory.pools.block_size * log.block_tokens;
    const int64_t room = run.memory.kv_bytes / block_bytes;
    const auto begin = std::chrono::steady_clock::now();
    const DenseLog dense(log);
    const traces::HitRates rates = block_hit_rates(log, dense, room, eviction_of(config), worth_of(model));
    run.lookups_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    run.bound = offline_bound(log, dense, room);
    run.convention = fmt::format("blocks of {} tokens as the trace has them, room for {}", log.block_tokens, room);
    run.requests = static_cast<int64_t>(log.prompt_tokens.size());
    run.whole = rate_of(rates.whole);
    run.steady = rate_of(rates.second_half);
    run.block_references = dense.num_references();
    Digester digester;
    add_to(digester, rates.whole);
    add_to(digester, rates.second_half);
    digester.add(run.bound->blocks_hit);
    run.digest = digester.digest();
}

// What run_heads and run_rivals have in common.
void take_rows(const CacheRunResult& result, int32_t block_size, CacheOnlyRun& run) {
    const std::span<const RowTimes> rows(result.rows);
    const Metrics whole = metrics_of(rows, block_size, {});
    run.requests = whole.requests + result.rejected;
    run.rejected = result.rejected;
    run.whole = whole.hit_rate;
    run.steady = metrics_of(rows.subspan(rows.size() / 2), block_size, {}).hit_rate;
    run.evictions = result.evictions;
    run.reused_tokens = 0;
    for (const RowTimes& row : rows) *run.reused_tokens += row.reused_tokens;
    run.block_references = result.block_references;
    Digester digester;
    for (const RowTimes& row : result.rows) {
        digester.add(row.prompt_tokens);
        digester.add(row.reused_tokens);
        digester.add(row.outcome);
    }
    run.digest = digester.digest();
}

// The tiers, and what computing costs: a step that is a prompt's chunk alone.
Result<TiersConfig> priced_tiers(const SimulateConfig& config, const ModelShape& model, const Device& device,
                                 const MemoryPlan& memory) {
    TiersConfig tiers = tiers_of(config, model, memory);
    if (!tiers.any()) return tiers;
    ASSIGN_OR_RETURN(const auto kernels, kernel_times(config.cost, device));
    ASSIGN_OR_RETURN(const auto cost, cost_model(config, model, device, *kernels));
    StepWork work;
    work.chunks.push_back({config.step_tokens, 0});
    work.num_tokens = config.step_tokens;
    work.num_logit_rows = 1;
    tiers.step_tokens = {config.step_tokens, config.step_tokens};
    tiers.step_ns = std::llround(cost->price(work).total_ns());
    return tiers;
}

Status run_heads(const SimulateConfig& config, const ModelShape& model, const Device& device,
                 const traces::Trace& trace, CacheOnlyRun& run) {
    const EngineConfig engine = engine_config(config, model, run.memory);
    const auto policy = make_eviction_policy(eviction_of(config), worth_of(model));
    ASSIGN_OR_RETURN(const TiersConfig tiers, priced_tiers(config, model, device, run.memory));
    const auto begin = std::chrono::steady_clock::now();
    ASSIGN_OR_RETURN(const CacheRunResult result, run_cache({.cache = engine.cache,
                                                             .max_checkpoints = engine.scheduler.max_checkpoints,
                                                             .max_model_len = engine.max_model_len,
                                                             .use_cache = config.cache_mode != CacheMode::kNone,
                                                             .tiers = tiers},
                                                            trace, model.vocab_size, *policy));
    run.lookups_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    run.convention = fmt::format("the engine's heads, row after row; blocks of {} tokens", run.memory.pools.block_size);
    take_rows(result, run.memory.pools.block_size, run);
    run.restores = result.restores;
    run.tiers = result.tiers;
    if (learns(engine.cache)) run.reusable_tokens = result.reusable_tokens;
    run.has_head_bound = config.cache_mode == CacheMode::kExact;
    if (config.head_bound) {
        ASSIGN_OR_RETURN(run.head_bound,
                         head_bound(trace, model.vocab_size,
                                    {run.memory.pools.num_state_rows,
                                     int64_t{run.memory.pools.num_blocks} * run.memory.pools.block_size}));
    }
    return {};
}

Status run_rivals(const SimulateConfig& config, const ModelShape& model, Rival rival, const traces::Trace& trace,
                  CacheOnlyRun& run) {
    RivalConfig rival_config{.rival = rival,
                             .budget_bytes = run.memory.cache_bytes,
                             .kv_bytes_per_token = model.kv_bytes_per_token,
                             .state_bytes = model.state_bytes_per_row,
                             .step_tokens = config.step_tokens,
                             .operations_per_token = flops_of(model).per_token,
                             .operations_per_pair = flops_of(model).per_pair,
                             .max_model_len = config.max_context.value_or(model.max_positions)};
    if (rival == Rival::kVllmAlign) rival_config.pages = *aligned_pages(model, {16, config.state_value_bytes});
    const auto begin = std::chrono::steady_clock::now();
    ASSIGN_OR_RETURN(const CacheRunResult result, run_rival(rival_config, trace, model.vocab_size));
    run.lookups_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    run.convention = fmt::format("the policy of {}, row after row, in {}", name_of(config.cache_mode),
                                 format_bytes(static_cast<uint64_t>(run.memory.cache_bytes)));
    take_rows(result, run.memory.pools.block_size, run);
    return {};
}

}  // namespace

Result<CacheOnlyRun> run_cache_only(const SimulateConfig& config, const ModelShape& given, const Device& device,
                                    const std::string& trace_name, const traces::ReadTrace& trace) {
    const auto begin = std::chrono::steady_clock::now();
    const ModelShape model = deployed_shape(config, given);
    CacheOnlyRun run{.trace = trace_name, .model = model.name};
    run.config = config;
    ASSIGN_OR_RETURN(run.memory, plan_deployment(config, given, device));
    const bool has_blocks = trace.blocks.block_tokens > 0;
    if (config.cache_mode == CacheMode::kAttention && has_blocks) {
        run_blocks(config, model, trace.blocks, run);
    } else if (const auto rival = rival_of(config.cache_mode)) {
        RETURN_IF_ERROR(run_rivals(config, model, *rival, trace.trace, run));
    } else {
        RETURN_IF_ERROR(run_heads(config, model, device, trace.trace, run));
    }
    run.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    run.peak_rss_bytes = peak_resident_bytes();
    return run;
}

}  // namespace verbatim
