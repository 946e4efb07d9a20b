#include "simulator/results_json.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/cache/not_reused.h"
#include "simulator/run_figures.h"

namespace verbatim {
namespace {

using nlohmann::ordered_json;

ordered_json json_of(const Distribution& times) {
    if (times.count == 0) return {{"mean", nullptr}, {"p50", nullptr}, {"p95", nullptr}, {"p99", nullptr}};
    return {{"mean", times.mean}, {"p50", times.p50}, {"p95", times.p95}, {"p99", times.p99}};
}

ordered_json json_of(const HitRate& rate) {
    return {{"block", rate.block}, {"token", rate.token}, {"request", rate.request}};
}

ordered_json json_of(const MemoryPlan& memory) {
    return {{"total_bytes", memory.total_bytes},
            {"weights_bytes", memory.weights_bytes},
            {"workspace_bytes", memory.workspace_bytes},
            {"cache_bytes", memory.cache_bytes},
            {"kv_bytes", memory.kv_bytes},
            {"state_bytes", memory.state_bytes}};
}

ordered_json json_of(const MemoryPlan& memory, const SimulationResult& result) {
    ordered_json json = json_of(memory);
    json["kv_peak_bytes"] = result.peak_blocks * memory.block_bytes;
    json["state_peak_bytes"] = result.peak_state_rows * memory.row_bytes;
    return json;
}

ordered_json price_sources(const Price& price) {
    ordered_json shares;
    const double total = price.total_ns();
    for (size_t i = 0; i < kNumPriceSources; ++i) {
        shares[name(static_cast<PriceSource>(i))] = total > 0 ? price.ns[i] / total : 0;
    }
    return shares;
}

ordered_json bounds_json(const SimulateRun& run, const Slo& slo) {
    if (!run.bounds) return nullptr;
    const BoundedFigures figures(run, slo);
    const auto pair = [](const Bounds& bounds) { return ordered_json{bounds.low, bounds.high}; };
    const KernelFactors& fast = run.bounds->fast_factors;
    const KernelFactors& slow = run.bounds->slow_factors;
    ordered_json json = {{"roofline_factors", {fast.rooflines, slow.rooflines}}};
    if (run.config.weights != WeightFormat::kBf16) json["other_factors"] = {fast.others, slow.others};
    for (const auto& [key, times] : {std::pair{"ttft_s", &Metrics::ttft}, std::pair{"tpot_s", &Metrics::tpot}}) {
        for (const auto& [name, value] : kDistributionValues) json[key][name] = pair(figures.of(times, value));
    }
    json["throughput_tokens_per_s"] = pair(figures.throughput());
    return json;
}

int64_t sum_of(const std::vector<TierCounts>& tiers, int64_t TierCounts::*count) {
    int64_t sum = 0;
    for (const TierCounts& tier : tiers) sum += tier.*count;
    return sum;
}

// Keys for the details of a run with tiers: what these held, wrote and read.
void add_tier_counts(ordered_json& details, const SimulateConfig& config, const RestoreCounts& restores,
                     const std::vector<TierCounts>& tiers) {
    if (tiers.empty()) return;
    details["restores"] = restores.restores;
    details["restored_tokens"] = restores.restored_tokens;
    details["restores_not_worth"] = restores.not_worth;
    details["restores_without_room"] = restores.no_room;
    details["tier_bytes_read"] = sum_of(tiers, &TierCounts::bytes_read);
    details["tier_bytes_written"] = sum_of(tiers, &TierCounts::bytes_written);
    for (size_t i = 0; i < tiers.size(); ++i) {
        const TierCounts& tier = tiers[i];
        details["tiers"].push_back({{"name", config.tiers[i].name},
                                    {"bytes", config.tiers[i].bytes},
                                    {"heads", tier.heads},
                                    {"held_bytes", tier.bytes},
                                    {"peak_bytes", tier.peak_bytes},
                                    {"writes", tier.writes},
                                    {"bytes_written", tier.bytes_written},
                                    {"not_written", tier.not_written},
                                    {"evictions", tier.evictions},
                                    {"reads", tier.reads},
                                    {"bytes_read", tier.bytes_read},
                                    {"tokens_read", tier.tokens_read},
                                    {"read_s", static_cast<double>(tier.read_ns) * 1e-9}});
    }
}

// What is not among the keys that every run has.
ordered_json details_json(const SimulateRun& run, const Slo& slo, const Metrics& whole) {
    const Metrics steady = metrics_of(steady_rows(run), run.memory.pools.block_size, slo);
    ordered_json details;
    details["trace"] = run.trace;
    details["model"] = run.model.name;
    details["device"] = run.device.name;
    details["block_tokens"] = run.memory.pools.block_size;
    details["gpus_per_replica"] = run.config.parallelism.num_gpus();
    if (!run.model.experts.empty()) details["expert_skew"] = run.config.expert_skew;
    if (run.config.admission != AdmissionOrder::kArrival) {
        details["admission"] = name(run.config.admission);
        details["max_wait_steps"] = run.config.max_wait_steps;
    }
    details["answered"] = whole.requests;
    details["busy"] = run.result.driver.busy;
    details["virtual_s"] = duration_s(run);
    details["steps"] = run.result.stats.steps;
    details["steady_state"] = {{"requests", steady.requests},    {"hit_rate", json_of(steady.hit_rate)},
                               {"ttft_s", json_of(steady.ttft)}, {"tpot_s", json_of(steady.tpot)},
                               {"e2e_s", json_of(steady.e2e)},   {"client_wait_s", json_of(steady.client_wait)}};
    details["reused_tokens"] = run.result.stats.reused_tokens;
    details["reusable_tokens"] =
        knows_reusable(run) ? ordered_json(run.result.stats.reusable_tokens) : ordered_json(nullptr);
    ordered_json reasons;
    for (size_t i = 0; i < run.result.stats.not_reused.size(); ++i) {
        reasons[name(static_cast<NotReused>(i))] = run.result.stats.not_reused[i];
    }
    details["not_reused_tokens"] = std::move(reasons);
    details["gpus"] = run.peak_gpus;
    const bool varies = run.config.autoscale && duration_s(run) > 0;
    details["gpus_mean"] = varies ? run.gpu_s / duration_s(run) : run.peak_gpus;
    if (run.config.autoscale) details["gpus_bound"] = most_gpus(run.config);
    details["gpu_s"] = run.gpu_s;
    if (run.config.apart) {
        details["transfers"] = {{"heads", run.transfers.heads},
                                {"bytes", run.transfers.bytes},
                                {"wait_s", static_cast<double>(run.transfers.wait_ns) * 1e-9},
                                {"without_room", run.transfers.without_room}};
    }
    details["recomputed_tokens"] = run.result.stats.recomputed_tokens;
    add_tier_counts(details, run.config, run.result.restores, run.result.tiers);
    if (slo.any()) {
        details["goodput"] = {{"requests", whole.requests_in_slo},
                              {"requests_per_s", per_second(run, whole.requests_in_slo)}};
    }
    details["unexpected"] = run.result.driver.unexpected;
    return details;
}

}  // namespace

ordered_json simulate_json(const SimulateRun& run, const Slo& slo) {
    const Metrics whole = metrics_of(run.result.driver.times, run.memory.pools.block_size, slo);
    ordered_json json;
    json["requests"] = run.result.requests;
    json["rejected"] = run.result.driver.rejected;
    json["hit_rate"] = json_of(whole.hit_rate);
    json["ttft_s"] = json_of(whole.ttft);
    json["tpot_s"] = json_of(whole.tpot);
    json["e2e_s"] = json_of(whole.e2e);
    json["client_wait_s"] = json_of(whole.client_wait);
    json["throughput_tokens_per_s"] = per_second(run, served_tokens(run.result));
    json["preemptions"] = run.result.stats.preemptions;
    json["evictions"] = run.result.stats.evictions;
    json["memory"] = json_of(run.memory, run.result);
    for (const reference::StoredType& type : run.model.stored)
        json["weights_by_type"].push_back({{"type", type.name},
                                           {"weights", type.num_weights},
                                           {"bytes", type.num_bytes},
                                           {"linear_bytes", type.linear_bytes},
                                           {"read_ms", read_ms(type.linear_bytes, run.device)}});
    json["price_sources"] = price_sources(run.result.price);
    json["bounds"] = bounds_json(run, slo);
    json["wall_s"] = run.wall_s;
    json["peak_rss_bytes"] = run.peak_rss_bytes;
    json["digest"] = run.result.digest.hex();
    json["details"] = details_json(run, slo, whole);
    for (const ReplicaSummary& replica : run.replicas) {
        ordered_json& one =
            json["replicas"].emplace_back(ordered_json{{"rows", replica.rows},
                                                       {"served", replica.served},
                                                       {"steps", replica.steps},
                                                       {"virtual_s", static_cast<double>(replica.virtual_ns) * 1e-9},
                                                       {"digest", replica.digest.hex()}});
        if (run.config.autoscale) one["begin_s"] = static_cast<double>(replica.begin_ns) * 1e-9;
        if (run.config.apart) one["computes"] = replica.role == EngineRole::kPrompts ? "prompts" : "answers";
    }
    return json;
}

ordered_json cache_only_json(const CacheOnlyRun& run) {
    ordered_json json;
    json["requests"] = run.requests;
    json["rejected"] = run.rejected;
    json["hit_rate"] = json_of(run.whole);
    for (const char* key : {"ttft_s", "tpot_s", "e2e_s", "client_wait_s", "throughput_tokens_per_s", "preemptions"}) {
        json[key] = nullptr;
    }
    json["evictions"] = run.evictions ? ordered_json(*run.evictions) : ordered_json(nullptr);
    json["memory"] = json_of(run.memory);
    json["price_sources"] = nullptr;
    json["wall_s"] = run.wall_s;
    json["peak_rss_bytes"] = run.peak_rss_bytes;
    json["digest"] = run.digest.hex();
    json["details"] = {
        {"trace", run.trace},
        {"model", run.model},
        {"convention", run.convention},
        {"steady_state", {{"hit_rate", json_of(run.steady)}}},
        {"reused_tokens", run.reused_tokens ? ordered_json(*run.reused_tokens) : ordered_json(nullptr)},
        {"reusable_tokens", run.reusable_tokens ? ordered_json(*run.reusable_tokens) : ordered_json(nullptr)},
        {"block_references", run.block_references},
        {"lookups_s", run.lookups_s}};
    add_tier_counts(json["details"], run.config, run.restores, run.tiers);
    if (run.bound) {
        json["details"]["offline_bound"] = {{"block", run.bound->block_rate}, {"token", run.bound->token_rate}};
    }
    if (run.head_bound) json["details"]["offline_bound"] = {{"token", run.head_bound->token_rate}};
    return json;
}

ordered_json tiers_json(const SimulateConfig& config) {
    ordered_json tiers = ordered_json::array();
    for (const TierConfig& tier : config.tiers) {
        tiers.push_back({{"name", tier.name},
                         {"bytes", tier.bytes},
                         {"bytes_per_us", tier.bytes_per_us},
                         {"latency_ns", tier.latency_ns}});
    }
    return {{"evict", config.tier_eviction == TierEviction::kLru ? "lru" : "value"},
            {"restore", static_cast<int>(config.restore)},
            {"tiers", std::move(tiers)}};
}

}  // namespace verbatim
