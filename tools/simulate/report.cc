#include "tools/simulate/report.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "tools/program/cli.h"
#include "tools/simulate/choices.h"
#include "tools/simulate/tier_options.h"
#include "traces/verbatim_csv_format.h"

namespace verbatim::tools {
namespace {

using nlohmann::ordered_json;

constexpr double kNsPerSec = 1e9;

std::span<const RowTimes> steady_rows(const SimulateRun& run) {
    const auto& rows = run.result.driver.times;
    return std::span(rows).subspan(rows.size() / 2);
}

ordered_json json_of(const Distribution& times) {
    if (times.count == 0) return {{"mean", nullptr}, {"p50", nullptr}, {"p95", nullptr}, {"p99", nullptr}};
    return {{"mean", times.mean}, {"p50", times.p50}, {"p95", times.p95}, {"p99", times.p99}};
}

ordered_json json_of(const HitRate& rate) {
    return {{"block", rate.block}, {"token", rate.token}, {"request", rate.request}};
}

ordered_json json_of(const MemoryPlan& memory, const SimulationResult& result) {
    return {{"total_bytes", memory.total_bytes},
            {"weights_bytes", memory.weights_bytes},
            {"workspace_bytes", memory.workspace_bytes},
            {"cache_bytes", memory.cache_bytes},
            {"kv_bytes", memory.kv_bytes},
            {"state_bytes", memory.state_bytes},
            {"kv_peak_bytes", result.peak_blocks * memory.block_bytes},
            {"state_peak_bytes", result.peak_state_rows * memory.row_bytes}};
}

ordered_json price_sources(const Price& price) {
    ordered_json shares;
    const double total = price.total_ns();
    for (size_t i = 0; i < kNumPriceSources; ++i) {
        shares[name(static_cast<PriceSource>(i))] = total > 0 ? price.ns[i] / total : 0;
    }
    return shares;
}

int64_t served_tokens(const SimulationResult& result) {
    int64_t tokens = 0;
    for (const RowTimes& row : result.driver.times) tokens += is_answered(row) ? row.output_tokens : 0;
    return tokens;
}

int64_t served_tokens(const SimulateRun& run) { return served_tokens(run.result); }

double tokens_per_second(const SimulationResult& result) {
    const double seconds = static_cast<double>(result.driver.virtual_ns) / kNsPerSec;
    return seconds > 0 ? static_cast<double>(served_tokens(result)) / seconds : 0;
}

// A figure of the runs with the fastest rooflines, the device's own and the slowest ones. Faster kernels do not make
// every figure better: the queue is another.
struct Bounds {
    double low = 0;
    double high = 0;
};

Bounds bounds_of(std::array<double, 3> values) {
    const auto [low, high] = std::ranges::minmax(values);
    return {low, high};
}

// Figures of the three runs.
class BoundedFigures {
public:
    BoundedFigures(const SimulateRun& run, const Slo& slo)
        : results_{&run.bounds->fast, &run.result, &run.bounds->slow} {
        for (size_t i = 0; i < results_.size(); ++i)
            metrics_[i] = metrics_of(results_[i]->driver.times, run.memory.pools.block_size, slo);
    }
    [[nodiscard]] Bounds of(Distribution Metrics::*times, double Distribution::*value) const {
        return bounds_of({metrics_[0].*times.*value, metrics_[1].*times.*value, metrics_[2].*times.*value});
    }
    [[nodiscard]] Bounds throughput() const {
        return bounds_of(
            {tokens_per_second(*results_[0]), tokens_per_second(*results_[1]), tokens_per_second(*results_[2])});
    }

private:
    std::array<const SimulationResult*, 3> results_;
    std::array<Metrics, 3> metrics_;
};

constexpr std::array kValues = {std::pair{"mean", &Distribution::mean}, std::pair{"p50", &Distribution::p50},
                                std::pair{"p95", &Distribution::p95}, std::pair{"p99", &Distribution::p99}};

ordered_json bounds_json(const SimulateRun& run, const Slo& slo) {
    if (!run.bounds) return nullptr;
    const BoundedFigures figures(run, slo);
    const auto pair = [](const Bounds& bounds) { return ordered_json{bounds.low, bounds.high}; };
    ordered_json json = {{"roofline_factors", {run.device.roofline_fast, run.device.roofline_slow}}};
    for (const auto& [key, times] : {std::pair{"ttft_s", &Metrics::ttft}, std::pair{"tpot_s", &Metrics::tpot}}) {
        for (const auto& [name, value] : kValues) json[key][name] = pair(figures.of(times, value));
    }
    json["throughput_tokens_per_s"] = pair(figures.throughput());
    return json;
}

std::string bounds_table(const SimulateRun& run, const Slo& slo) {
    if (!run.bounds) return "";
    const BoundedFigures figures(run, slo);
    Table table(
        {fmt::format("rooflines x {} ... {}", run.device.roofline_fast, run.device.roofline_slow), "low", "high"});
    const auto add = [&](const std::string& label, const Bounds& bounds, int digits) {
        table.add_row({label, fmt::format("{:.{}f}", bounds.low, digits), fmt::format("{:.{}f}", bounds.high, digits)});
    };
    for (const auto& [label, times] :
         {std::pair{"time to first token", &Metrics::ttft}, std::pair{"time per token", &Metrics::tpot}}) {
        for (const auto& [name, value] : kValues)
            add(fmt::format("{}, {}, s", label, name), figures.of(times, value), 3);
    }
    add("tokens per second", figures.throughput(), 1);
    return "\n" + table.to_string();
}

double duration_s(const SimulateRun& run) { return static_cast<double>(run.result.driver.virtual_ns) / kNsPerSec; }

double per_second(const SimulateRun& run, int64_t count) {
    return duration_s(run) > 0 ? static_cast<double>(count) / duration_s(run) : 0;
}

int64_t rejected(const SimulateRun& run) { return run.result.driver.rejected; }

bool knows_reusable(const SimulateRun& run) { return learns(engine_config(run.config, run.model, run.memory).cache); }

// What is not among the keys that every run has.
ordered_json details_json(const SimulateRun& run, const Slo& slo, const Metrics& whole) {
    const Metrics steady = metrics_of(steady_rows(run), run.memory.pools.block_size, slo);
    ordered_json details;
    details["trace"] = run.trace;
    details["model"] = run.model.name;
    details["device"] = run.device.name;
    details["block_tokens"] = run.memory.pools.block_size;
    details["gpus_per_replica"] = 1;
    if (!run.model.experts.empty()) details["expert_skew"] = run.config.expert_skew;
    if (run.config.admission != AdmissionOrder::kArrival) {
        details["admission"] = verbatim::name(run.config.admission);
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
    details["recomputed_tokens"] = run.result.stats.recomputed_tokens;
    add_tier_counts(details, run.config, run.result.restores, run.result.tiers);
    if (slo.any()) {
        details["goodput"] = {{"requests", whole.requests_in_slo},
                              {"requests_per_s", per_second(run, whole.requests_in_slo)}};
    }
    details["unexpected"] = run.result.driver.unexpected;
    return details;
}

std::vector<std::string> cells(const std::string& label, const Distribution& times) {
    if (times.count == 0) return {label, "-", "-", "-", "-"};
    return {label, fmt::format("{:.3f}", times.mean), fmt::format("{:.3f}", times.p50),
            fmt::format("{:.3f}", times.p95), fmt::format("{:.3f}", times.p99)};
}

std::string times_table(const std::string& title, const Metrics& metrics) {
    Table table({title, "mean", "p50", "p95", "p99"});
    table.add_row(cells("time to first token, s", metrics.ttft));
    table.add_row(cells("time per token, s", metrics.tpot));
    table.add_row(cells("end to end, s", metrics.e2e));
    table.add_row(cells("client wait, s", metrics.client_wait));
    return table.to_string();
}

std::string percent(double share) { return fmt::format("{:.2f} %", 100 * share); }

std::string hit_rate_table(const Metrics& whole, const Metrics& steady) {
    Table table({"hit rate", "whole run", "steady state"});
    table.add_row({"by block", percent(whole.hit_rate.block), percent(steady.hit_rate.block)});
    table.add_row({"by token", percent(whole.hit_rate.token), percent(steady.hit_rate.token)});
    table.add_row({"by request", percent(whole.hit_rate.request), percent(steady.hit_rate.request)});
    return table.to_string();
}

std::string memory_table(const SimulateRun& run) {
    const MemoryPlan& memory = run.memory;
    Table table({"memory", "bytes", "most used"});
    table.add_row({fmt::format("weights, {}", name_of(run.config.weights)), format_bytes(memory.weights_bytes), ""});
    table.add_row({"workspace", format_bytes(memory.workspace_bytes), ""});
    table.add_row({fmt::format("KV, {} blocks of {} tokens", memory.pools.num_blocks, memory.pools.block_size),
                   format_bytes(memory.kv_bytes), format_bytes(run.result.peak_blocks * memory.block_bytes)});
    table.add_row({fmt::format("states, {} rows", memory.pools.num_state_rows), format_bytes(memory.state_bytes),
                   format_bytes(run.result.peak_state_rows * memory.row_bytes)});
    return table.to_string();
}

std::string sources_table(const Price& price) {
    Table table({"the steps' time is", "share"});
    const double total = price.total_ns();
    for (size_t i = 0; i < kNumPriceSources; ++i) {
        table.add_row({name(static_cast<PriceSource>(i)), percent(total > 0 ? price.ns[i] / total : 0)});
    }
    return table.to_string();
}

std::string counts_table(const SimulateRun& run, const Metrics& whole, const Slo& slo) {
    const DriverReport& driver = run.result.driver;
    Table table({"run", "value"});
    const auto add = [&](const char* label, const std::string& value) { table.add_row({label, value}); };
    add("requests", fmt::format("{}", run.result.requests));
    add("answered", fmt::format("{}", whole.requests));
    add("rejected (too long)", fmt::format("{}", rejected(run)));
    if (driver.busy > 0) add("sent while busy", fmt::format("{}", driver.busy));
    add("virtual time, s", fmt::format("{:.1f}", duration_s(run)));
    add("steps", fmt::format("{}", run.result.stats.steps));
    add("tokens per second", fmt::format("{:.1f}", per_second(run, served_tokens(run))));
    add("preemptions", fmt::format("{}", run.result.stats.preemptions));
    add("evictions", fmt::format("{}", run.result.stats.evictions));
    add("prompt tokens reused", fmt::format("{}", run.result.stats.reused_tokens));
    if (knows_reusable(run)) add("an unlimited cache reuses", fmt::format("{}", run.result.stats.reusable_tokens));
    if (slo.any()) {
        add("requests within the SLO", fmt::format("{}", whole.requests_in_slo));
        add("goodput, requests per second", fmt::format("{:.3f}", per_second(run, whole.requests_in_slo)));
    }
    add("digest", run.result.digest.hex());
    return table.to_string();
}

// Empty for what never happened.
std::string seconds(int64_t ns) {
    return ns < 0 ? "" : fmt::format("{}.{:09}", ns / 1'000'000'000, ns % 1'000'000'000);
}

const char* name(RowOutcome outcome) {
    constexpr std::array kNames = {"not_over", "served", "aborted", "recorded", "refused",
                                   "rejected", "busy",   "failed",  "done"};
    return kNames.at(static_cast<size_t>(outcome));
}

}  // namespace

ordered_json simulate_json(const SimulateRun& run, const Slo& slo) {
    const Metrics whole = metrics_of(run.result.driver.times, run.memory.pools.block_size, slo);
    ordered_json json;
    json["requests"] = run.result.requests;
    json["rejected"] = rejected(run);
    json["hit_rate"] = json_of(whole.hit_rate);
    json["ttft_s"] = json_of(whole.ttft);
    json["tpot_s"] = json_of(whole.tpot);
    json["e2e_s"] = json_of(whole.e2e);
    json["client_wait_s"] = json_of(whole.client_wait);
    json["throughput_tokens_per_s"] = per_second(run, served_tokens(run));
    json["preemptions"] = run.result.stats.preemptions;
    json["evictions"] = run.result.stats.evictions;
    json["memory"] = json_of(run.memory, run.result);
    json["price_sources"] = price_sources(run.result.price);
    json["bounds"] = bounds_json(run, slo);
    json["wall_s"] = run.wall_s;
    json["peak_rss_bytes"] = run.peak_rss_bytes;
    json["digest"] = run.result.digest.hex();
    json["details"] = details_json(run, slo, whole);
    for (const ReplicaSummary& replica : run.replicas) {
        json["replicas"].push_back({{"rows", replica.rows},
                                    {"served", replica.served},
                                    {"steps", replica.steps},
                                    {"virtual_s", static_cast<double>(replica.virtual_ns) * 1e-9},
                                    {"digest", replica.digest.hex()}});
    }
    return json;
}

std::string simulate_table(const SimulateRun& run, const Slo& slo) {
    const Metrics whole = metrics_of(run.result.driver.times, run.memory.pools.block_size, slo);
    const Metrics steady = metrics_of(steady_rows(run), run.memory.pools.block_size, slo);
    std::string text = fmt::format(
        "{}: {} on {} {}\n\n", run.trace, run.model.name,
        run.replicas.empty() ? "one" : fmt::format("{} replicas, each on one", run.replicas.size()), run.device.name);
    text += counts_table(run, whole, slo) + "\n";
    text += tiers_table(run.config, run.result.restores, run.result.tiers);
    text += times_table("whole run", whole) + "\n";
    text += times_table("steady state", steady) + "\n";
    text += hit_rate_table(whole, steady) + "\n";
    text += memory_table(run) + "\n";
    text += sources_table(run.result.price);
    text += bounds_table(run, slo);
    for (const std::string& what : run.result.driver.unexpected) text += "unexpected: " + what + "\n";
    return text;
}

ordered_json table_check_json(const std::string& device, const std::vector<LeaveOutError>& errors) {
    ordered_json json;
    json["device"] = device;
    json["tables"] = ordered_json::array();
    for (const LeaveOutError& error : errors) {
        json["tables"].push_back(
            {{"table", error.table},
             {"rows", error.num_rows},
             {"mean", error.mean},
             {"p50", error.p50},
             {"p95", error.p95},
             {"of_roofline", {error.of_roofline_p10, error.of_roofline_p50, error.of_roofline_p90}},
             {"rim_rows", error.num_extrapolated},
             {"rim_mean", error.mean_extrapolated}});
    }
    return json;
}

std::string table_check_table(const std::string& device, const std::vector<LeaveOutError>& errors) {
    Table table({device, "rows", "mean", "p50", "p95", "at the rim", "mean there", "of roofline, p10", "p50", "p90"});
    for (const LeaveOutError& error : errors) {
        table.add_row({error.table, fmt::format("{}", error.num_rows), percent(error.mean), percent(error.p50),
                       percent(error.p95), fmt::format("{}", error.num_extrapolated), percent(error.mean_extrapolated),
                       fmt::format("{:.2f}", error.of_roofline_p10), fmt::format("{:.2f}", error.of_roofline_p50),
                       fmt::format("{:.2f}", error.of_roofline_p90)});
    }
    return table.to_string();
}

std::string requests_csv(const SimulateRun& run, const traces::Trace& trace) {
    std::string text =
        "row,outcome,wanted_s,due_s,first_token_s,end_s,prompt_tokens,reused_tokens,output_tokens,name,conversation,"
        "event,replica,restored_tokens\n";
    for (size_t i = 0; i < run.result.driver.times.size(); ++i) {
        const RowTimes& times = run.result.driver.times[i];
        const traces::Row& row = trace.rows[i];
        text += fmt::format("{},{},{},{},{},{},{},{},{},", i, name(times.outcome), seconds(times.wanted_ns),
                            seconds(times.due_ns), seconds(times.first_token_ns), seconds(times.end_ns),
                            times.prompt_tokens, times.reused_tokens, times.output_tokens);
        text += fmt::format("{},{},{},{},{}\n", trace.names[row.name], trace.names[trace.conversation_of(row).name],
                            traces::csv_format::kEvents[static_cast<size_t>(row.event)],
                            run.replica_of_row.empty() ? 0 : run.replica_of_row[i], times.restored_tokens);
    }
    return text;
}

std::string steps_csv(const SimulateRun& run) {
    std::string text = "end_s,elapsed_s,sequences,decodes,tokens,waiting,kv_used_bytes,state_used_bytes,preemptions\n";
    for (const StepSample& step : run.result.steps) {
        text += fmt::format("{},{},{},{},{},{},{},{},{}\n", seconds(step.end_ns), seconds(step.elapsed_ns),
                            step.num_sequences, step.num_decodes, step.num_tokens, step.num_waiting,
                            step.used_blocks * run.memory.block_bytes, step.used_state_rows * run.memory.row_bytes,
                            step.preemptions);
    }
    return text;
}

}  // namespace verbatim::tools
