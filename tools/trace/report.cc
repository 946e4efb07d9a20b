#include "tools/trace/report.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "reference/model/model_config.h"
#include "reference/model/presets.h"
#include "tools/program/cli.h"

namespace verbatim::tools {
namespace {

using nlohmann::ordered_json;
using namespace verbatim::traces;

constexpr int64_t kMaxLookups = 10'000'000;  // of a limited cache: more take minutes

std::string percent(int64_t part, int64_t whole) {
    return whole == 0 ? "-" : fmt::format("{:.2f} %", 100 * static_cast<double>(part) / static_cast<double>(whole));
}
std::string percent(double rate) { return fmt::format("{:.2f} %", 100 * rate); }

BlockHits block_hits(const ReadTrace& trace) {
    BlockHits hits;
    hits.lookups = num_lookups(trace.blocks);
    hits.unique_blocks = num_unique_blocks(trace.blocks);
    hits.unlimited = unlimited_hit_rates(trace.blocks);
    if (trace.report.format == Format::kMooncake) hits.literal_tokens = literal_continuation_tokens(trace.blocks);
    if (hits.lookups > kMaxLookups) return hits;
    const auto add = [&](std::string room, int64_t blocks) {
        hits.limited.push_back({std::move(room), blocks, lru_hit_rates(trace.blocks, blocks)});
    };
    for (const int64_t share : {1, 5, 10, 25, 50}) {
        add(fmt::format("{} % of the unique blocks", share), hits.unique_blocks * share / 100);
    }
    for (const int64_t ki : {256, 1024, 4096, 16384}) {
        const std::string name = ki < 1024 ? fmt::format("{} Ki tokens", ki) : fmt::format("{} Mi tokens", ki / 1024);
        add(name, ki * 1024 / trace.blocks.block_tokens);
    }
    return hits;
}

// A made-up trace may ask for more bytes than there are numbers.
int64_t saturating_product(int64_t count, int64_t bytes) {
    int64_t product = 0;
    return __builtin_mul_overflow(count, bytes, &product) ? std::numeric_limits<int64_t>::max() : product;
}

void add_needs(const TraceStats& stats, std::vector<ModelNeed>& needs) {
    for (const char* name : {"tiny-granite", "granite-4.0-h-1b"}) {
        const auto config = reference::preset(name);
        if (!config) continue;
        const reference::ModelGeometry size = reference::geometry(*config);
        needs.push_back({name, saturating_product(stats.distinct_tokens(), size.kv_bytes_per_token),
                         saturating_product(stats.requests, size.state_bytes_per_row),
                         stats.longest_row * size.kv_bytes_per_token + size.state_bytes_per_row});
    }
}

void add_distribution(Table& table, const char* what, const Distribution& of, double unit, int digits) {
    const auto shown = [&](double value) { return fmt::format("{:.{}f}", value / unit, digits); };
    if (of.count == 0) return;
    table.add_row({what, std::to_string(of.count), shown(of.mean), shown(static_cast<double>(of.min)),
                   shown(static_cast<double>(of.p50)), shown(static_cast<double>(of.p90)),
                   shown(static_cast<double>(of.p99)), shown(static_cast<double>(of.max))});
}

ordered_json json_of(const Distribution& of) {
    return {{"count", of.count}, {"mean", of.mean}, {"min", of.min}, {"p50", of.p50},
            {"p90", of.p90},     {"p99", of.p99},   {"max", of.max}};
}

ordered_json json_of(const HitRates& rates) {
    const auto part = [](const HitCount& count) -> ordered_json {
        return {{"by_block", count.block_rate()},     {"by_token", count.token_rate()},
                {"by_request", count.request_rate()}, {"blocks", count.blocks},
                {"blocks_hit", count.blocks_hit},     {"tokens", count.tokens},
                {"tokens_hit", count.tokens_hit}};
    };
    return {{"whole", part(rates.whole)}, {"second_half", part(rates.second_half)}};
}

std::string hits_table(const BlockHits& hits, int64_t prompt_tokens) {
    Table table(
        {"block cache of", "blocks", "by block", "by token", "by request", "by block, 2nd half", "by token, 2nd half"});
    const auto add = [&](const std::string& room, const std::string& blocks, const HitRates& rates) {
        table.add_row({room, blocks, percent(rates.whole.block_rate()), percent(rates.whole.token_rate()),
                       percent(rates.whole.request_rate()), percent(rates.second_half.block_rate()),
                       percent(rates.second_half.token_rate())});
    };
    for (const LimitedRoom& limited : hits.limited) add(limited.room, std::to_string(limited.blocks), limited.rates);
    add("no limit", std::to_string(hits.unique_blocks), hits.unlimited);
    std::string text = table.to_string();
    if (hits.limited.empty())
        text += fmt::format("({} lookups: limited caches are shown up to {})\n", hits.lookups, kMaxLookups);
    if (hits.literal_tokens) {
        text += fmt::format("partial blocks taken by their id, whole conversations reused: {} of the prompt tokens\n",
                            percent(*hits.literal_tokens, prompt_tokens));
    }
    return text;
}

std::string source_table(const TraceStats& stats) {
    Table table({"prompt tokens", "count", "share"});
    const auto add = [&](const char* what, int64_t count) {
        table.add_row({what, std::to_string(count), percent(count, stats.prompt_total)});
    };
    add("taken by a continuation", stats.by_continuation);
    add("taken by a rewrite", stats.by_rewrite);
    add("taken by an edit", stats.by_edit);
    add("own, said before in the session", stats.repeated_within);
    add("own, said before elsewhere", stats.repeated_across);
    add("own, new", stats.new_tokens);
    add("all", stats.prompt_total);
    return table.to_string();
}

}  // namespace

TraceReport make_trace_report(const std::string& file, const ReadTrace& trace) {
    TraceReport report{file, trace.report, stats_of(trace.trace), std::nullopt, {}};
    if (trace.blocks.block_tokens > 0 && num_lookups(trace.blocks) > 0) report.hits = block_hits(trace);
    add_needs(report.stats, report.needs);
    return report;
}

std::string conversion_table(const ReadReport& report, const Trace& trace) {
    Table table;
    const auto add = [&](const char* what, int64_t value) { table.add_row({what, std::to_string(value)}); };
    table.add_row({"format", name(report.format)});
    add("requests read", report.rows);
    if (report.sessions > 0) add("sessions", report.sessions);
    if (report.subagents > 0) add("sub-agents", report.subagents);
    if (report.subagents > 0) add("  while their session runs", report.overlapping_subagents);
    add("roots", report.roots);
    add("continuations", report.continuations);
    add("rewrites", report.rewrites);
    add("edits", report.edits);
    if (report.edits_in_last_block > 0) add("  in the last block only", report.edits_in_last_block);
    add("rows with several continuations", report.forked_rows);
    add("continuations beyond the first", report.forks);
    add("prompt tokens", report.prompt_tokens);
    table.add_row({"  taken by continuations", percent(report.continuation_tokens, report.prompt_tokens)});
    table.add_row({"  taken by rewrites", percent(report.rewrite_tokens, report.prompt_tokens)});
    table.add_row({"  common with an edited row", percent(report.edit_tokens, report.prompt_tokens)});
    if (report.over_context > 0) add("rows over the context", report.over_context);
    for (const auto& [what, count] : report.left_out) table.add_row({"left out: " + what, std::to_string(count)});
    add("rows of the trace", static_cast<int64_t>(trace.rows.size()));
    return table.to_string();
}

ordered_json conversion_json(const ReadReport& report, const Trace& trace) {
    return {{"format", name(report.format)},
            {"requests", report.rows},
            {"sessions", report.sessions},
            {"subagents", report.subagents},
            {"overlapping_subagents", report.overlapping_subagents},
            {"roots", report.roots},
            {"continuations", report.continuations},
            {"rewrites", report.rewrites},
            {"edits", report.edits},
            {"edits_in_last_block", report.edits_in_last_block},
            {"forked_rows", report.forked_rows},
            {"forks", report.forks},
            {"prompt_tokens", report.prompt_tokens},
            {"continuation_tokens", report.continuation_tokens},
            {"rewrite_tokens", report.rewrite_tokens},
            {"edit_tokens", report.edit_tokens},
            {"over_context", report.over_context},
            {"left_out", report.left_out},
            {"rows", trace.rows.size()}};
}

std::string trace_table(const TraceReport& report) {
    const TraceStats& stats = report.stats;
    Table counts;
    counts.add_row({"trace", report.file});
    counts.add_row({"format", name(report.read.format)});
    counts.add_row({"requests", std::to_string(stats.requests)});
    counts.add_row({"other events", std::to_string(stats.events)});
    counts.add_row({"sessions", std::to_string(stats.sessions)});
    counts.add_row({"conversations", std::to_string(stats.conversations)});
    counts.add_row({"duration", fmt::format("{:.1f} s", static_cast<double>(stats.duration_ns) / 1e9)});
    counts.add_row({"requests per second", fmt::format("{:.3f}", stats.requests_per_second)});
    counts.add_row({"busiest second", std::to_string(stats.busiest_second)});
    counts.add_row({"variation of arrival gaps", fmt::format("{:.3f} (1: Poisson)", stats.gap_cv)});

    Table lengths({"per", "count", "mean", "min", "p50", "p90", "p99", "max"});
    add_distribution(lengths, "prompt, tokens", stats.prompt_tokens, 1, 0);
    add_distribution(lengths, "own part, tokens", stats.own_tokens, 1, 0);
    add_distribution(lengths, "output, tokens", stats.output_tokens, 1, 0);
    add_distribution(lengths, "conversation, turns", stats.turns, 1, 1);
    add_distribution(lengths, "request, depth", stats.depth, 1, 1);
    add_distribution(lengths, "think time, s", stats.think_ns, 1e9, 2);
    add_distribution(lengths, "arrival gap, s", stats.gap_ns, 1e9, 3);

    Table needs({"to keep everything", "KV", "states", "longest request"});
    for (const ModelNeed& need : report.needs) {
        needs.add_row({need.model, format_bytes(static_cast<uint64_t>(need.kv_bytes)),
                       format_bytes(static_cast<uint64_t>(need.state_bytes)),
                       format_bytes(static_cast<uint64_t>(need.longest_request_bytes))});
    }
    std::string text = counts.to_string() + "\n" + lengths.to_string() + "\n" + source_table(stats) + "\n";
    if (report.hits) text += hits_table(*report.hits, stats.prompt_total) + "\n";
    return text + needs.to_string();
}

ordered_json trace_json(const TraceReport& report) {
    const TraceStats& stats = report.stats;
    ordered_json json = {{"trace", report.file},
                         {"format", name(report.read.format)},
                         {"requests", stats.requests},
                         {"events", stats.events},
                         {"sessions", stats.sessions},
                         {"conversations", stats.conversations},
                         {"subsequent", stats.subsequent},
                         {"duration_ns", stats.duration_ns},
                         {"requests_per_second", stats.requests_per_second},
                         {"busiest_second", stats.busiest_second},
                         {"gap_cv", stats.gap_cv},
                         {"prompt_tokens", json_of(stats.prompt_tokens)},
                         {"own_tokens", json_of(stats.own_tokens)},
                         {"output_tokens", json_of(stats.output_tokens)},
                         {"turns", json_of(stats.turns)},
                         {"depth", json_of(stats.depth)},
                         {"think_ns", json_of(stats.think_ns)},
                         {"gap_ns", json_of(stats.gap_ns)},
                         {"prompt_total", stats.prompt_total},
                         {"by_continuation", stats.by_continuation},
                         {"by_rewrite", stats.by_rewrite},
                         {"by_edit", stats.by_edit},
                         {"repeated_within", stats.repeated_within},
                         {"repeated_across", stats.repeated_across},
                         {"new_tokens", stats.new_tokens},
                         {"output_total", stats.output_total}};
    if (report.hits) {
        ordered_json& hits = json["block_cache"];
        hits = {{"unique_blocks", report.hits->unique_blocks}, {"lookups", report.hits->lookups}};
        hits["unlimited"] = json_of(report.hits->unlimited);
        for (const LimitedRoom& limited : report.hits->limited) {
            ordered_json entry = json_of(limited.rates);
            entry["room"] = limited.room;
            entry["blocks"] = limited.blocks;
            hits["limited"].push_back(entry);
        }
        if (report.hits->literal_tokens) hits["literal_continuation_tokens"] = *report.hits->literal_tokens;
    }
    for (const ModelNeed& need : report.needs) {
        json["needs"].push_back({{"model", need.model},
                                 {"kv_bytes", need.kv_bytes},
                                 {"state_bytes", need.state_bytes},
                                 {"longest_request_bytes", need.longest_request_bytes}});
    }
    return json;
}

}  // namespace verbatim::tools
