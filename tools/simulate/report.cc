#include "tools/simulate/report.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "simulator/choice_names.h"
#include "simulator/run_figures.h"
#include "tools/program/cli.h"
#include "tools/program/tier_options.h"
#include "tools/simulate/cluster_options.h"
#include "traces/verbatim_csv_format.h"

namespace verbatim::tools {
namespace {

using nlohmann::ordered_json;

std::string bounds_table(const SimulateRun& run, const Slo& slo) {
    if (!run.bounds) return "";
    const BoundedFigures figures(run, slo);
    const KernelFactors& fast = run.bounds->fast_factors;
    const KernelFactors& slow = run.bounds->slow_factors;
    std::string factors = fmt::format("rooflines x {} ... {}", fast.rooflines, slow.rooflines);
    if (run.config.weights != WeightFormat::kBf16)
        factors += fmt::format(", other kernels x {} ... {}", fast.others, slow.others);
    Table table({factors, "low", "high"});
    const auto add = [&](const std::string& label, const Bounds& bounds, int digits) {
        table.add_row({label, fmt::format("{:.{}f}", bounds.low, digits), fmt::format("{:.{}f}", bounds.high, digits)});
    };
    for (const auto& [label, times] :
         {std::pair{"time to first token", &Metrics::ttft}, std::pair{"time per token", &Metrics::tpot}}) {
        for (const auto& [name, value] : kDistributionValues)
            add(fmt::format("{}, {}, s", label, name), figures.of(times, value), 3);
    }
    add("tokens per second", figures.throughput(), 1);
    return "\n" + table.to_string();
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
    Table table({run.config.parallelism.num_gpus() == 1 ? "memory" : "memory of one GPU", "bytes", "most used"});
    const bool is_stored = !run.model.stored.empty();
    table.add_row({fmt::format("weights, {}", is_stored ? "as stored" : name_of(run.config.weights)),
                   format_bytes(memory.weights_bytes), ""});
    table.add_row({"workspace", format_bytes(memory.workspace_bytes), ""});
    table.add_row({fmt::format("KV, {} blocks of {} tokens", memory.pools.num_blocks, memory.pools.block_size),
                   format_bytes(memory.kv_bytes), format_bytes(run.result.peak_blocks * memory.block_bytes)});
    table.add_row({fmt::format("states, {} rows", memory.pools.num_state_rows), format_bytes(memory.state_bytes),
                   format_bytes(run.result.peak_state_rows * memory.row_bytes)});
    return table.to_string();
}

// Of a quantised checkpoint, all of it: how long one device reads its linear layers and experts.
std::string stored_table(const SimulateRun& run) {
    if (run.model.stored.empty()) return "";
    Table table({"weights in the checkpoint", "weights", "bytes", "linear layers", "read in"});
    for (const reference::StoredType& type : run.model.stored) {
        table.add_row({type.name, fmt::format("{}", type.num_weights), format_bytes(type.num_bytes),
                       format_bytes(type.linear_bytes),
                       fmt::format("{:.3f} ms", read_ms(type.linear_bytes, run.device))});
    }
    return table.to_string() + "\n";
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
    add("rejected", fmt::format("{}", run.result.driver.rejected));
    if (!driver.unexpected.empty()) add("ended unexpectedly", fmt::format("{}", driver.unexpected.size()));
    if (driver.busy > 0) add("sent while busy", fmt::format("{}", driver.busy));
    add("virtual time, s", fmt::format("{:.{}f}", duration_s(run), duration_s(run) < 10 ? 3 : 1));
    add("steps", fmt::format("{}", run.result.stats.steps));
    add("tokens per second", fmt::format("{:.1f}", per_second(run, served_tokens(run.result))));
    add("preemptions", fmt::format("{}", run.result.stats.preemptions));
    add("evictions", fmt::format("{}", run.result.stats.evictions));
    add("prompt tokens reused", fmt::format("{}", run.result.stats.reused_tokens));
    if (knows_reusable(run)) add("an unlimited cache reuses", fmt::format("{}", run.result.stats.reusable_tokens));
    if (slo.any()) {
        add("requests within the SLO", fmt::format("{}", whole.requests_in_slo));
        add("goodput, requests per second", fmt::format("{:.3f}", per_second(run, whole.requests_in_slo)));
    }
    if (has_several_engines(run.config)) add("GPU seconds", fmt::format("{:.1f}", run.gpu_s));
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

std::string simulate_table(const SimulateRun& run, const Slo& slo) {
    const Metrics whole = metrics_of(run.result.driver.times, run.memory.pools.block_size, slo);
    const Metrics steady = metrics_of(steady_rows(run), run.memory.pools.block_size, slo);
    const int32_t num_gpus = run.config.parallelism.num_gpus();
    const std::string devices = num_gpus == 1 ? "one" : fmt::format("{}", num_gpus);
    const auto& scale = run.config.autoscale;
    const std::string replicas =
        scale ? fmt::format("{} to {}", scale->least, scale->most) : fmt::format("{}", run.replicas.size());
    std::string text = fmt::format(
        "{}: {} on {} {}\n\n", run.trace, run.model.name,
        run.replicas.empty() ? devices : fmt::format("{} replicas, each on {}", replicas, devices), run.device.name);
    text += counts_table(run, whole, slo) + "\n";
    text += cluster_table(run);
    text += tiers_table(run.config, run.result.restores, run.result.tiers);
    text += times_table("whole run", whole) + "\n";
    text += times_table("steady state", steady) + "\n";
    text += hit_rate_table(whole, steady) + "\n";
    text += memory_table(run) + "\n";
    text += stored_table(run);
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
        const bool is_counted = times.outcome != RowOutcome::kRejected && times.outcome != RowOutcome::kRefused;
        const int64_t prompt_tokens = is_counted ? times.prompt_tokens : row.prompt_tokens;
        text += fmt::format("{},{},{},{},{},{},{},{},{},", i, name(times.outcome), seconds(times.wanted_ns),
                            seconds(times.due_ns), seconds(times.first_token_ns), seconds(times.end_ns), prompt_tokens,
                            times.reused_tokens, times.output_tokens);
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

std::string cache_only_table(const CacheOnlyRun& run) {
    const auto percent = [](double share) { return fmt::format("{:.2f} %", 100 * share); };
    Table rates({"hit rate", "whole trace", "second half"});
    rates.add_row({"by block", percent(run.whole.block), percent(run.steady.block)});
    rates.add_row({"by token", percent(run.whole.token), percent(run.steady.token)});
    rates.add_row({"by request", percent(run.whole.request), percent(run.steady.request)});
    if (run.bound) {
        rates.add_row({"at most, by block", percent(run.bound->block_rate), ""});
        rates.add_row({"at most, by token", percent(run.bound->token_rate), ""});
    }
    if (run.head_bound) rates.add_row({"at most, by token", percent(run.head_bound->token_rate), ""});
    Table counts({"run", "value"});
    counts.add_row({"requests", fmt::format("{}", run.requests)});
    counts.add_row({"rejected", fmt::format("{}", run.rejected)});
    if (run.evictions) counts.add_row({"evictions", fmt::format("{}", *run.evictions)});
    if (run.reused_tokens) counts.add_row({"prompt tokens reused", fmt::format("{}", *run.reused_tokens)});
    if (run.reusable_tokens) counts.add_row({"an unlimited cache reuses", fmt::format("{}", *run.reusable_tokens)});
    counts.add_row({"KV and states", format_bytes(run.memory.cache_bytes)});
    counts.add_row({"KV, at most", format_bytes(run.memory.kv_bytes)});
    counts.add_row({"states, at most", format_bytes(run.memory.state_bytes)});
    counts.add_row({"block references", fmt::format("{}", run.block_references)});
    counts.add_row({"digest", run.digest.hex()});
    const char* bound =
        run.has_head_bound && !run.head_bound ? "\n--head-bound computes the most that any eviction could reuse\n" : "";
    return fmt::format("{}: {}, cache only\n{}\n\n{}\n{}{}{}", run.trace, run.model, run.convention, counts.to_string(),
                       tiers_table(run.config, run.restores, run.tiers), rates.to_string(), bound);
}

}  // namespace verbatim::tools
