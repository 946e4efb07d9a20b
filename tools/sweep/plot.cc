#include "tools/sweep/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "simulator/sweep.h"
#include "tools/program/cli.h"
#include "tools/program/svg.h"

namespace verbatim::tools {
namespace {

using nlohmann::ordered_json;

constexpr int kWidth = 760;
constexpr int kLeft = 90;
constexpr int kRight = 740;
constexpr int kTop = 40;
constexpr int kBottom = 220;
constexpr int kLegendLine = 18;
constexpr std::array kColors = {"#06c", "#c60", "#0a6", "#c33", "#80c", "#088", "#a80", "#555"};

// A line's points by x, by the line's name.
using Lines = std::map<std::string, std::map<double, double>>;
using Show = std::function<std::string(double)>;

struct Chart {
    std::string title;
    Lines lines;
    Show show_x;
    Show show_y;
};

struct Range {
    double least = 0;
    double most = 1;
    [[nodiscard]] double share(double x) const { return most > least ? (x - least) / (most - least) : 0.5; }
};

Range x_range(const Lines& lines) {
    Range range{lines.begin()->second.begin()->first, lines.begin()->second.begin()->first};
    for (const auto& [name, points] : lines) {
        range.least = std::min(range.least, points.begin()->first);
        range.most = std::max(range.most, points.rbegin()->first);
    }
    return range;
}

double largest_y(const Lines& lines) {
    double most = 0;
    for (const auto& [name, points] : lines) {
        for (const auto& [x, y] : points) most = std::max(most, y);
    }
    return most > 0 ? most : 1;
}

std::string line_svg(const std::map<double, double>& points, const Range& range, double most, const char* color) {
    std::string path;
    std::string dots;
    for (const auto& [x, y] : points) {
        const double px = kLeft + (kRight - kLeft) * range.share(x);
        const double py = kBottom - (kBottom - kTop) * y / most;
        path += fmt::format("{:.1f},{:.1f} ", px, py);
        dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", px, py, color);
    }
    return fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\" points=\"{}\"/>\n", color, path) +
           dots;
}

std::string chart_svg(const Chart& chart) {
    const Range range = x_range(chart.lines);
    const double most = largest_y(chart.lines);
    std::string svg = svg_begin(kWidth, kBottom + 40 + kLegendLine * static_cast<int>(chart.lines.size()));
    svg += svg_text(kLeft, 20, chart.title, "font-weight=\"bold\"");
    for (const double share : {0.0, 0.5, 1.0}) {
        const int y = kBottom - static_cast<int>((kBottom - kTop) * share);
        svg += fmt::format("<line x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\" stroke=\"#ddd\"/>\n", kLeft, kRight, y, y);
        svg += svg_text(kLeft - 6, y + 4, chart.show_y(most * share), "text-anchor=\"end\"");
    }
    svg += svg_text(kLeft, kBottom + 16, chart.show_x(range.least));
    svg += svg_text(kRight, kBottom + 16, chart.show_x(range.most), "text-anchor=\"end\"");
    int y = kBottom + 36;
    size_t color = 0;
    for (const auto& [name, points] : chart.lines) {
        const char* const of_line = kColors[color++ % kColors.size()];
        svg += line_svg(points, range, most, of_line);
        svg += svg_text(kLeft, y, name, fmt::format("fill=\"{}\"", of_line));
        y += kLegendLine;
    }
    return svg + "</svg>\n";
}

std::string show_bytes(double bytes) { return fmt::format("{:.4g} GB", bytes / 1e9); }
std::string show_share(double share) { return fmt::format("{:.1f} %", 100 * share); }
std::string show_seconds(double seconds) { return fmt::format("{:.3g} s", seconds); }
std::string show_rate(double rate) { return fmt::format("x {:.4g}", rate); }
std::string show_number(double number) { return fmt::format("{:.4g}", number); }

// Keys of a point whose values need no name: the pictures' axes and what every point has.
const std::set<std::string> kCommonKeys = {"memory_bytes", "cache_mode", "evict", "rate_scale", "admission"};

std::string text_of_value(const ordered_json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
}

// By title; a line has one point at least.
class Charts {
public:
    void add(const ordered_json& line) {
        if (line.contains("problem")) return;
        const ordered_json& point = line.at("point");
        const ordered_json& result = line.at("result");
        const auto memory = point.at("memory_bytes").get<double>();
        const auto rate = point.at("rate_scale").get<double>();
        std::string name =
            fmt::format("{}, {}", point.at("cache_mode").get<std::string>(), point.at("evict").get<std::string>());
        for (const auto& [key, value] : point.items()) {
            if (key == "admission") name += ", " + value.get<std::string>();
            if (!kCommonKeys.contains(key)) name += fmt::format(", {} {}", key, text_of_value(value));
        }
        at("hit rate over memory, arrivals " + show_rate(rate), show_bytes, show_share).lines[name][memory] =
            result.at("hit_rate").at("token");
        at("time to first token, p95, over arrivals, " + show_bytes(memory), show_rate, show_seconds)
            .lines[name][rate] = result.at("ttft_s").at("p95");
        at("tokens per second over arrivals, " + show_bytes(memory), show_rate, show_number).lines[name][rate] =
            result.at("throughput_tokens_per_s");
        const ordered_json& tpot = result.at("tpot_s").at("p95");
        if (!tpot.is_number()) return;
        const double tokens = result.at("throughput_tokens_per_s");
        per_gpu_.emplace_back(
            tpot, tokens / (point.value("replicas", 1.0) * point.value("tp", 1.0) * point.value("pp", 1.0)));
    }
    // The Pareto front: the points that no other one exceeds in throughput per GPU at the same or a shorter time.
    void add_front() {
        std::ranges::sort(per_gpu_);
        double most = 0;
        for (const auto& [tpot, tokens] : per_gpu_) {
            if (tokens <= most) continue;
            most = tokens;
            at("tokens per second and GPU over time per token, p95", show_seconds, show_number).lines["front"][tpot] =
                tokens;
        }
    }
    [[nodiscard]] const std::vector<Chart>& all() const { return charts_; }

private:
    Chart& at(const std::string& title, Show show_x, Show show_y) {
        const auto found = std::ranges::find(charts_, title, &Chart::title);
        if (found != charts_.end()) return *found;
        return charts_.emplace_back(Chart{title, {}, std::move(show_x), std::move(show_y)});
    }
    std::vector<Chart> charts_;
    std::vector<std::pair<double, double>> per_gpu_;  // time per token, s; tokens per second and GPU
};

}  // namespace

Result<std::string> sweep_page(const std::string& path) {
    ASSIGN_OR_RETURN(const SweepResults results, read_sweep(path));
    if (results.lines.empty()) return error("{}: has no points yet", path);
    Charts charts;
    try {
        for (const auto& [number, line] : results.lines) charts.add(line);
        charts.add_front();
    } catch (const ordered_json::exception& problem) {
        return error("{}: a point is not one of a sweep: {}", path, problem.what());
    }
    const ordered_json& sweep = results.header.at("sweep");
    std::string page =
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>sweep</title>"
        "<style>body{font-family:sans-serif;margin:2em}svg{display:block;margin:1em 0}</style></head><body>\n";
    const auto text_of = [&](const char* key) {
        return sweep.contains(key) && sweep[key].is_string() ? sweep[key].get<std::string>() : std::string("?");
    };
    const std::string what = fmt::format("{}: {} on {}, {} of {} points", text_of("trace"), text_of("model"),
                                         text_of("device"), results.lines.size(), sweep["points"].size());
    page += svg_begin(kWidth, 40) + svg_text(10, 26, what, "font-size=\"16\"") + "</svg>\n";
    for (const Chart& chart : charts.all()) page += chart_svg(chart);
    return page + "</body></html>\n";
}

}  // namespace verbatim::tools
