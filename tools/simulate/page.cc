#include "tools/simulate/page.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "tools/program/cli.h"
#include "tools/program/svg.h"
#include "tools/program/xml.h"
#include "tools/simulate/report.h"

namespace verbatim::tools {
namespace {

constexpr int kWidth = 760;
constexpr int kHeight = 260;
constexpr int kLeft = 90;
constexpr int kRight = 740;
constexpr int kTop = 40;
constexpr int kBottom = 220;
constexpr size_t kBins = 400;

struct Line {
    std::string label;
    const char* color;
    std::vector<double> values;  // one per bin
};

double largest(const std::vector<Line>& lines) {
    double most = 0;
    for (const Line& line : lines) {
        for (const double value : line.values) most = std::max(most, value);
    }
    return most > 0 ? most : 1;
}

std::string polyline(const Line& line, double most) {
    std::string points;
    for (size_t i = 0; i < line.values.size(); ++i) {
        const double x =
            kLeft + (kRight - kLeft) * static_cast<double>(i) / static_cast<double>(line.values.size() - 1);
        const double y = kBottom - (kBottom - kTop) * line.values[i] / most;
        points += fmt::format("{:.1f},{:.1f} ", x, y);
    }
    return fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\" points=\"{}\"/>\n", line.color,
                       points);
}

// Lines over a common axis; `show` writes a value of the y axis, `end` stands at the right end of the x axis.
std::string chart(const std::string& title, const std::vector<Line>& lines, const std::string& end,
                  const std::function<std::string(double)>& show) {
    const double most = largest(lines);
    std::string svg = svg_begin(kWidth, kHeight);
    svg += svg_text(kLeft, 20, title, "font-weight=\"bold\"");
    for (const double share : {0.0, 0.5, 1.0}) {
        const int y = kBottom - static_cast<int>((kBottom - kTop) * share);
        svg += fmt::format("<line x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\" stroke=\"#ddd\"/>\n", kLeft, kRight, y, y);
        svg += svg_text(kLeft - 6, y + 4, show(most * share), "text-anchor=\"end\"");
    }
    for (const Line& line : lines) svg += polyline(line, most);
    int x = kLeft;
    for (const Line& line : lines) {
        svg += svg_text(x, kBottom + 32, line.label, fmt::format("fill=\"{}\"", line.color));
        x += 40 + 8 * static_cast<int>(line.label.size());
    }
    svg += svg_text(kLeft, kBottom + 14, "0");
    svg += svg_text(kRight, kBottom + 14, end, "text-anchor=\"end\"");
    return svg + "</svg>\n";
}

std::string number(double value) { return fmt::format("{:.4g}", value); }

// The value at every bin's percentile of sorted times, in seconds.
Line percentile_line(const char* label, const char* color, std::vector<int64_t> times_ns) {
    std::ranges::sort(times_ns);
    Line line{label, color, {}};
    for (size_t i = 0; i < kBins && !times_ns.empty(); ++i) {
        line.values.push_back(static_cast<double>(times_ns[i * (times_ns.size() - 1) / (kBins - 1)]) / 1e9);
    }
    if (line.values.empty()) line.values = {0, 0};
    return line;
}

std::string latency_chart(const SimulateRun& run) {
    std::vector<int64_t> first;
    std::vector<int64_t> end;
    for (const RowTimes& row : run.result.driver.times) {
        if (const auto ttft = ttft_ns(row)) first.push_back(*ttft);
        if (is_answered(row)) end.push_back(row.end_ns - row.due_ns);
    }
    return chart("latency by percentile, s",
                 {percentile_line("time to first token", "#0a6", std::move(first)),
                  percentile_line("end to end", "#06c", std::move(end))},
                 "100 %", number);
}

// The largest value of every bin of virtual time; a bin without a step keeps what was before.
Line over_time(const SimulateRun& run, const char* label, const char* color,
               const std::function<double(const StepSample&)>& value) {
    Line line{label, color, std::vector<double>(kBins, -1)};
    const auto whole = static_cast<double>(std::max<int64_t>(1, run.result.driver.virtual_ns));
    for (const StepSample& step : run.result.steps) {
        const auto bin = static_cast<size_t>(static_cast<double>(step.end_ns) / whole * (kBins - 1));
        double& most = line.values[std::min(bin, kBins - 1)];
        most = std::max(most, value(step));
    }
    double before = 0;
    for (double& most : line.values) before = most = most < 0 ? before : most;
    return line;
}

std::string time_charts(const SimulateRun& run) {
    const std::string end = fmt::format("{:.0f} s", static_cast<double>(run.result.driver.virtual_ns) / 1e9);
    const auto bytes = [](double value) { return format_bytes(static_cast<uint64_t>(value)); };
    const MemoryPlan& memory = run.memory;
    return chart(
               "memory in use by group",
               {over_time(run, "KV", "#06c",
                          [&](const StepSample& s) { return static_cast<double>(s.used_blocks * memory.block_bytes); }),
                over_time(
                    run, "states", "#c60",
                    [&](const StepSample& s) { return static_cast<double>(s.used_state_rows * memory.row_bytes); })},
               end, bytes) +
           chart("requests: the most at a time",
                 {over_time(run, "running", "#0a6", [](const StepSample& s) { return s.num_sequences; }),
                  over_time(run, "waiting", "#c33", [](const StepSample& s) { return s.num_waiting; })},
                 end, number) +
           chart("preemptions so far",
                 {over_time(run, "preemptions", "#c33",
                            [](const StepSample& s) { return static_cast<double>(s.preemptions); })},
                 end, number);
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
    std::string page = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>";
    page += xml_escaped(fmt::format("{}: {} on {}", run.trace, run.model.name, run.device.name));
    page +=
        "</title><style>body{font-family:sans-serif;margin:2em}svg{display:block;margin:1em 0}</style></head><body>\n";
    page += "<h1>" + xml_escaped(run.trace) + "</h1>\n";
    page += latency_chart(run) + reuse_bars(run) + time_charts(run);
    page += "<pre>" + xml_escaped(simulate_table(run, slo)) + "</pre>\n</body></html>\n";
    return page;
}

}  // namespace verbatim::tools
