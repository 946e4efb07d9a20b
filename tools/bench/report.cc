#include "tools/bench/report.h"

#include <nlohmann/json.hpp>
#include <numeric>

#include "tools/program/cli.h"

namespace verbatim::tools {

using namespace bench;
namespace {

using Json = nlohmann::ordered_json;
using reference::WalkOp;

Json times_json(const Spread& time_s) {
    return {{"median", time_s.median * 1e3}, {"min", time_s.min * 1e3}, {"max", time_s.max * 1e3}};
}

Json figure_or_null(double figure) { return figure > 0 ? Json(figure) : Json(nullptr); }

// What was not between two points of the walk: the plan before, the draw after.
double rest_s(const BenchRow& row) {
    return row.watched_s - std::accumulate(row.op_times_s.begin(), row.op_times_s.end(), 0.0);
}

Json operations_json(const BenchRow& row, const MachineLimits& machine) {
    Json operations = Json::array();
    if (row.watched_s == 0) return operations;
    const auto limits = row.cost.limit_by_op_s(machine);
    for (int i = 0; i < kNumWalkOps; ++i) {
        if (row.op_times_s[i] == 0) continue;
        operations.push_back({{"op", reference::walk_op_name(static_cast<WalkOp>(i))},
                              {"time_ms", row.op_times_s[i] * 1e3},
                              {"limit_ms", limits[i] * 1e3}});
    }
    operations.push_back({{"op", "rest"}, {"time_ms", rest_s(row) * 1e3}, {"limit_ms", 0.0}});
    return operations;
}

Json row_json(const BenchReport& report, const BenchRow& row) {
    const MachineLimits& machine = report.machine;
    const RowFigures figures = figures_of(row, machine);
    Json json{{"phase", row.phase},
              {"profile", row.profile},
              {"batch", row.batch},
              {"context", row.context},
              {"tokens_per_s", figures.tokens_per_s},
              {"gbps", figures.gbps},
              {"gflops", figures.gflops},
              {"of_limit", figures.of_limit},
              {"of_limit_nearby", figures.of_limit_nearby},
              {"of_limit_paired", figure_or_null(figures.of_limit_paired)},
              {"of_limit_at_best", figures.of_limit_at_best},
              {"of_limit_by_processor", figure_or_null(figures.of_limit_by_processor)},
              {"matmuls_of_limit", figure_or_null(figures.matmuls_of_limit)},
              {"of_fast", figure_or_null(of_fast(report, row))},
              {"tokens", row.num_tokens},
              {"repetitions", row.times_s.size()},
              {"time_ms", times_json(figures.time_s)},
              {"limit_ms", row.cost.limit_s(machine) * 1e3},
              {"processor_share", figure_or_null(row.processor_share)},
              {"check", row.check},
              {"correct", !row.wrong},
              {"operations", operations_json(row, machine)}};
    if (!row.suffix_times_s.empty()) {
        json["suffix_time_ms"] = times_json(spread_of(row.suffix_times_s));
        json["of_suffix"] = figures.of_suffix;
    }
    if (row.load) {
        json["file_bytes"] = row.load->file_bytes;
        json["read_time_ms"] = times_json(spread_of(row.load->read_times_s));
        json["fresh_memory_time_ms"] = times_json(spread_of(row.load->fresh_times_s));
        json["of_read"] = 1 / figures.of_limit;
        json["resident_bytes"] = row.load->resident_bytes;
        json["weight_and_pool_bytes"] = row.load->wanted_bytes;
    }
    return json;
}

// With the memory as it was just before each repetition: a neighbour that takes half of its speed takes it from both.
double paired_share(const BenchRow& row, MachineLimits machine) {
    if (row.streams_before.empty()) return 0;
    std::vector<double> shares;
    for (size_t i = 0; i < row.times_s.size(); ++i) {
        machine.stream_bytes_per_s = row.streams_before[i];
        shares.push_back(row.cost.limit_s(machine) / row.times_s[i]);
    }
    return spread_of(std::move(shares)).median;
}

double median_ratio(const std::vector<double>& a, const std::vector<double>& b) {
    std::vector<double> ratios;
    for (size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
    return spread_of(std::move(ratios)).median;
}

std::string percent(double share) { return share > 0 ? fmt::format("{:.1f} %", 100 * share) : "-"; }

// The second comparison of the row's time, apart from the limit.
std::string comparison_text(const BenchReport& report, const BenchRow& row, const RowFigures& figures) {
    if (row.load) return fmt::format("{:.2f} x read", 1 / figures.of_limit);
    if (figures.of_suffix > 0) return fmt::format("{:.3f} x suffix", figures.of_suffix);
    if (const double share = of_fast(report, row); share > 0) return fmt::format("{:.3f} of fast", share);
    return "-";
}

std::string machine_lines(const BenchReport& report) {
    const MachineLimits& machine = report.machine;
    const std::string layers =
        report.config.num_layers > 0 ? fmt::format(", its first {} layers", report.config.num_layers) : "";
    return fmt::format(
        "{}{}, {} parameters, seed {}, {} threads, {}\n"
        "this machine: stream {:.1f} GB/s (over {}), fma {:.1f} GFLOP/s, vdpbf16ps {:.1f} GFLOP/s\n"
        "uncached reference: {} tokens, {}\n",
        report.config.model, layers, report.geometry.num_parameters, report.config.seed, report.config.num_threads,
        report.isa, machine.stream_bytes_per_s / 1e9, format_bytes(static_cast<uint64_t>(report.stream_buffer_bytes)),
        machine.fma_flops / 1e9, machine.dpbf16_flops / 1e9, report.reference_tokens,
        report.reference_wrong ? "DIFFERENT" : "identical");
}

std::string rows_table(const BenchReport& report) {
    Table table({"phase", "profile", "batch", "context", "tokens/s", "ms", "min", "max", "GB/s", "GFLOP/s", "of limit",
                 "nearby", "paired", "at best", "by cpu", "matmuls", "processors", "beside", "check"});
    for (const BenchRow& row : report.rows) {
        const RowFigures figures = figures_of(row, report.machine);
        const std::string comparison = comparison_text(report, row, figures);
        table.add_row(
            {row.phase, std::string(row.profile), fmt::format("{}", row.batch), fmt::format("{}", row.context),
             fmt::format("{:.1f}", figures.tokens_per_s), fmt::format("{:.2f}", figures.time_s.median * 1e3),
             fmt::format("{:.2f}", figures.time_s.min * 1e3), fmt::format("{:.2f}", figures.time_s.max * 1e3),
             fmt::format("{:.1f}", figures.gbps), fmt::format("{:.1f}", figures.gflops), percent(figures.of_limit),
             percent(figures.of_limit_nearby), percent(figures.of_limit_paired), percent(figures.of_limit_at_best),
             percent(figures.of_limit_by_processor), percent(figures.matmuls_of_limit), percent(row.processor_share),
             comparison, row.wrong ? "WRONG" : row.check});
    }
    return table.to_string();
}

std::string operations_table(const BenchReport& report) {
    Table table({"phase", "profile", "batch", "context", "operation", "ms", "share", "limit ms", "of limit"});
    for (const BenchRow& row : report.rows) {
        for (const Json& op : operations_json(row, report.machine)) {
            const double time_ms = op["time_ms"];
            const double limit_ms = op["limit_ms"];
            table.add_row({row.phase, std::string(row.profile), fmt::format("{}", row.batch),
                           fmt::format("{}", row.context), op["op"], fmt::format("{:.3f}", time_ms),
                           percent(time_ms / (row.watched_s * 1e3)), fmt::format("{:.3f}", limit_ms),
                           percent(limit_ms / time_ms)});
        }
    }
    return table.to_string();
}

std::string load_lines(const BenchReport& report) {
    std::string lines;
    for (const BenchRow& row : report.rows) {
        if (!row.load) continue;
        lines += fmt::format(
            "{}: {} of checkpoint added {} of resident memory; weights and pools are {}; reading took {:.0f} ms, as "
            "much "
            "fresh memory {:.0f} ms\n",
            row.phase, format_bytes(static_cast<uint64_t>(row.load->file_bytes)),
            format_bytes(static_cast<uint64_t>(std::max<int64_t>(0, row.load->resident_bytes))),
            format_bytes(static_cast<uint64_t>(row.load->wanted_bytes)), spread_of(row.load->read_times_s).median * 1e3,
            spread_of(row.load->fresh_times_s).median * 1e3);
    }
    return lines;
}

}  // namespace

RowFigures figures_of(const BenchRow& row, const MachineLimits& machine) {
    RowFigures figures;
    figures.time_s = spread_of(row.times_s);
    const double t = figures.time_s.median;
    if (row.load) {
        figures.gbps = static_cast<double>(row.load->file_bytes) / t / 1e9;
        figures.of_limit = spread_of(row.load->read_times_s).median / t;
        figures.of_limit_nearby = figures.of_limit;
        figures.of_limit_at_best = spread_of(row.load->read_times_s).min / figures.time_s.min;
        return figures;
    }
    figures.tokens_per_s = static_cast<double>(row.num_tokens) / t;
    figures.gbps = row.cost.bytes() / t / 1e9;
    figures.gflops = row.cost.operations() / t / 1e9;
    figures.of_limit = row.cost.limit_s(machine) / t;
    figures.of_limit_nearby = row.cost.limit_s(row.nearby) / t;
    figures.of_limit_paired = paired_share(row, machine);
    figures.of_limit_at_best = row.cost.limit_s(machine) / figures.time_s.min;
    if (!row.processor_times_s.empty()) {
        figures.of_limit_by_processor = row.cost.limit_s(machine) / spread_of(row.processor_times_s).median;
    }
    if (!row.suffix_times_s.empty()) figures.of_suffix = median_ratio(row.times_s, row.suffix_times_s);
    constexpr auto kMatmul = static_cast<size_t>(WalkOp::kMatmul);
    if (row.op_times_s[kMatmul] > 0) {
        figures.matmuls_of_limit = row.cost.limit_by_op_s(machine)[kMatmul] / row.op_times_s[kMatmul];
    }
    return figures;
}

double of_fast(const BenchReport& report, const BenchRow& row) {
    if (row.profile != "exact") return 0;
    for (const BenchRow& other : report.rows) {
        if (other.profile == "fast" && other.phase == row.phase && other.batch == row.batch &&
            other.context == row.context) {
            return median_ratio(other.times_s, row.times_s);
        }
    }
    return 0;
}

Json bench_json(const BenchReport& report) {
    Json rows = Json::array();
    for (const BenchRow& row : report.rows) rows.push_back(row_json(report, row));
    return {{"model", report.config.model},
            {"layers", report.config.num_layers > 0 ? Json(report.config.num_layers) : Json("all")},
            {"parameters", report.geometry.num_parameters},
            {"seed", report.config.seed},
            {"threads", report.config.num_threads},
            {"isa", report.isa},
            {"block_size", report.config.block_size},
            {"step_tokens", report.config.step_tokens},
            {"machine",
             {{"stream_read_gbps", report.machine.stream_bytes_per_s / 1e9},
              {"fma_gflops", report.machine.fma_flops / 1e9},
              {"dpbf16_gflops", report.machine.dpbf16_flops / 1e9},
              {"stream_buffer_bytes", report.stream_buffer_bytes}}},
            {"reference_tokens", report.reference_tokens},
            {"correct", !report.wrong()},
            {"rows", std::move(rows)}};
}

std::string bench_table(const BenchReport& report, bool with_operations) {
    std::string text = machine_lines(report) + rows_table(report) + load_lines(report);
    if (with_operations) text += operations_table(report);
    return text;
}

}  // namespace verbatim::tools
