#include "tools/simulate/page.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "files/chart.h"
#include "files/svg.h"
#include "files/xml.h"
#include "simulator/metrics.h"
#include "tools/program/cli.h"
#include "tools/simulate/report.h"

namespace verbatim::tools {
namespace {

constexpr int kWidth = 760;
constexpr size_t kBins = 400;

// The time at every percentile that bins show, in seconds.
ChartLine percentile_line(const char* name, size_t color, std::vector<int64_t> times_ns) {
    std::ranges::sort(times_ns);
    ChartLine line{.name = name, .color = color, .style = LineStyle::kSolid, .points = {}};
    for (size_t i = 0; i < kBins && !times_ns.empty(); ++i) {
        const double share = static_cast<double>(i) / (kBins - 1);
        const int64_t time_ns = verbatim::at_rank(times_ns, static_cast<int64_t>(i), kBins - 1);
        line.points.emplace_back(100 * share, static_cast<double>(time_ns) / 1e9);
    }
    return line;
}

std::string latency_chart(const SimulateRun& run, const Slo& slo) {
    std::vector<int64_t> first;
    std::vector<int64_t> between;
    std::vector<int64_t> end;
    for (const RowTimes& row : run.result.driver.times) {
        if (const auto ttft = ttft_ns(row)) first.push_back(*ttft);
        if (const auto tpot = tpot_ns(row)) between.push_back(*tpot);
        if (is_answered(row)) end.push_back(row.end_ns - row.due_ns);
    }
    std::vector<ChartLine> lines = {percentile_line("time to first token", 0, std::move(first)),
                                    percentile_line("time per token", 1, std::move(between)),
                                    percentile_line("end to end", 2, std::move(end))};
    std::vector<ChartLimit> limits;
    for (const auto& [name, limit] :
         {std::pair{"ttft", slo.ttft_ns}, std::pair{"tpot", slo.tpot_ns}, std::pair{"e2e", slo.e2e_ns}}) {
        if (limit) limits.push_back(time_limit(name, static_cast<double>(*limit) / 1e9));
    }
    return chart_svg({"latency by percentile",
                      {"requests, %", show_number},
                      time_axis("time"),
                      std::move(lines),
                      std::move(limits)});
}

// The largest value of every bin of virtual time; a bin without a step keeps what was before.
ChartLine over_time(const SimulateRun& run, const char* name, size_t color,
                    const std::function<double(const StepSample&)>& value) {
    std::vector<double> values(kBins, -1);
    const auto whole = static_cast<double>(std::max<int64_t>(1, run.result.driver.virtual_ns));
    for (const StepSample& step : run.result.steps) {
        const auto bin = static_cast<size_t>(static_cast<double>(step.end_ns) / whole * (kBins - 1));
        double& most = values[std::min(bin, kBins - 1)];
        most = std::max(most, value(step));
    }
    ChartLine line{.name = name, .color = color, .style = LineStyle::kSolid, .points = {}};
    double before = 0;
    for (size_t i = 0; i < kBins; ++i) {
        before = values[i] < 0 ? before : values[i];
        line.points.emplace_back(whole / 1e9 * static_cast<double>(i) / (kBins - 1), before);
    }
    return line;
}

std::string time_charts(const SimulateRun& run) {
    const ChartAxis time{"virtual time", show_seconds};
    const auto bytes = [](double value) { return format_bytes(static_cast<uint64_t>(value)); };
    const MemoryPlan& memory = run.memory;
    const auto chart = [&](const char* title, ChartAxis y, std::vector<ChartLine> lines) {
        return chart_svg({title, time, std::move(y), std::move(lines), {}});
    };
    const auto kv = [&](const StepSample& step) { return static_cast<double>(step.used_blocks * memory.block_bytes); };
    const auto states = [&](const StepSample& step) {
        return static_cast<double>(step.used_state_rows * memory.row_bytes);
    };
    return chart("memory in use by group", {"bytes", bytes},
                 {over_time(run, "KV", 0, kv), over_time(run, "states", 1, states)}) +
           chart("requests: the most at a time", {"requests", show_number},
                 {over_time(run, "running", 2, [](const StepSample& step) { return step.num_sequences; }),
                  over_time(run, "waiting", 3, [](const StepSample& step) { return step.num_waiting; })}) +
           chart("preemptions so far", {"preemptions", show_number},
                 {over_time(run, "preemptions", 3,
                            [](const StepSample& step) { return static_cast<double>(step.preemptions); })});
}

// GPUs and goodput first.
std::string run_figures(const SimulateRun& run, const Slo& slo) {
    const Metrics whole = metrics_of(run.result.driver.times, run.memory.pools.block_size, slo);
    const double seconds = static_cast<double>(run.result.driver.virtual_ns) / 1e9;
    std::vector<std::pair<std::string, std::string>> figures = {{"GPUs", fmt::format("{}", run.peak_gpus)}};
    const auto per_s = [&](int64_t count) { return seconds > 0 ? static_cast<double>(count) / seconds : 0; };
    if (slo.any()) figures.emplace_back("goodput, requests per second", show_number(per_s(whole.requests_in_slo)));
    figures.emplace_back("answered, requests per second", show_number(per_s(whole.requests)));
    if (whole.ttft.count > 0) figures.emplace_back("time to first token, p99", show_seconds(whole.ttft.p99));
    if (whole.tpot.count > 0) figures.emplace_back("time per token, p99", show_seconds(whole.tpot.p99));
    return page_figures(figures);
}

// Prompt tokens: reused, or why not.
std::string reuse_bars(const SimulateRun& run) {
    std::vector<std::pair<std::string, int64_t>> bars = {{"reused", run.result.stats.reused_tokens}};
    for (size_t i = 0; i < run.result.stats.not_reused.size(); ++i) {
        const int64_t tokens = run.result.stats.not_reused[i];
        if (tokens > 0) bars.emplace_back(verbatim::name(static_cast<NotReused>(i)), tokens);
    }
    int64_t sum = 0;
    for (const auto& [label, tokens] : bars) sum += tokens;
    const int height = 50 + 24 * static_cast<int>(bars.size());
    std::string svg = svg_begin(kWidth, height);
    svg += svg_text(10, 20, "prompt tokens: reused, or why not", "font-weight=\"bold\"");
    int y = 40;
    for (const auto& [label, tokens] : bars) {
        const double share = sum > 0 ? static_cast<double>(tokens) / static_cast<double>(sum) : 0;
        svg += svg_text(170, y + 12, label, "text-anchor=\"end\"");
        svg += fmt::format("<rect x=\"180\" y=\"{}\" width=\"{:.1f}\" height=\"16\" fill=\"{}\"/>\n", y, 440 * share,
                           label == "reused" ? "#0a6" : "#c60");
        svg += svg_text(190 + static_cast<int>(440 * share), y + 12, fmt::format("{:.2f} %", 100 * share));
        y += 24;
    }
    return svg + "</svg>\n";
}

}  // namespace

std::string simulate_page(const SimulateRun& run, const Slo& slo) {
    std::string page =
        page_begin(fmt::format("How does {} serve {} on {}?", run.model.name, run.trace, run.device.name));
    page += run_figures(run, slo) + latency_chart(run, slo) + reuse_bars(run) + time_charts(run);
    page += "<pre>" + xml_escaped(simulate_table(run, slo)) + "</pre>\n</body></html>\n";
    return page;
}

}  // namespace verbatim::tools
