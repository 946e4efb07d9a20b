#include "tools/sweep/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "files/chart.h"
#include "files/xml.h"
#include "simulator/sweep.h"

namespace verbatim::tools {
namespace {

using nlohmann::ordered_json;

std::string show_bytes(double bytes) { return fmt::format("{:.4g} GB", bytes / 1e9); }
std::string show_share(double share) { return fmt::format("{:.1f} %", 100 * share); }
std::string show_rate(double rate) { return fmt::format("x {:.4g}", rate); }

const std::set<std::string> kNamedDimensions = {"cache_mode", "evict"};  // in every name, without their key
const std::set<std::string> kAxes = {"memory_bytes", "rate_scale"};      // in titles
const std::set<std::string> kCounts = {"replicas", "tp", "ep", "pp", "step_tokens", "max_sequences"};

std::string text_of_value(const ordered_json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
}

// Which dimensions have several values among the points.
std::set<std::string> varied_keys(const SweepResults& results) {
    std::map<std::string, std::set<std::string>> values;
    for (const auto& [number, line] : results.lines) {
        for (const auto& [key, value] : line.at("point").items()) values[key].insert(value.dump());
    }
    std::set<std::string> varied;
    for (const auto& [key, different] : values) {
        const auto has_key = [&](const auto& line) { return line.second.at("point").contains(key); };
        if (different.size() > 1 || !std::ranges::all_of(results.lines, has_key)) varied.insert(key);
    }
    return varied;
}

double num_gpus(const ordered_json& point) {
    return point.value("replicas", 1.0) * point.value("tp", 1.0) * point.value("pp", 1.0);
}

// Requests a second within the objectives; none: there are no objectives, or no times.
std::optional<double> goodput(const ordered_json& result) {
    if (!result.contains("details") || !result["details"].contains("goodput")) return std::nullopt;
    return result["details"]["goodput"].at("requests_per_s").get<double>();
}

std::optional<double> percentile(const ordered_json& result, const char* latency, const char* name) {
    if (!result.contains(latency) || !result[latency].is_object()) return std::nullopt;
    const ordered_json& value = result[latency].at(name);
    return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

// The pictures of a sweep, by title, and the best of its points.
class SweepPictures {
public:
    SweepPictures(std::set<std::string> varied, std::vector<ChartLimit> ttft, std::vector<ChartLimit> tpot)
        : varied_(std::move(varied)), ttft_limits_(std::move(ttft)), tpot_limits_(std::move(tpot)) {}

    void add(const ordered_json& line) {
        if (line.contains("problem")) return;
        const ordered_json& point = line.at("point");
        const ordered_json& result = line.at("result");
        const auto memory = point.at("memory_bytes").get<double>();
        const auto rate = point.at("rate_scale").get<double>();
        const std::string at_rate = "arrivals " + show_rate(rate);
        const bool varies_count =
            std::ranges::any_of(kCounts, [&](const std::string& key) { return varied_.contains(key); });
        const bool has_other_axis = result.contains("ttft_s") && (varies_count || varied_.contains("rate_scale"));
        if (varied_.contains("memory_bytes") || !has_other_axis)
            add_point({"hit rate over memory, " + at_rate, {"hit rate, by token", show_share}, {}},
                      {"memory of the device", show_bytes}, name_without(point, "memory_bytes"), "", memory,
                      result.at("hit_rate").at("token"));
        if (varied_.contains("rate_scale") || !varies_count)
            add_over(result, "arrivals, " + show_bytes(memory), {"arrivals, of the trace's", show_rate},
                     name_without(point, "rate_scale"), rate);
        for (const std::string& key : kCounts) {
            if (!varied_.contains(key)) continue;
            add_over(result, fmt::format("{}, {}, {}", key, show_bytes(memory), at_rate), {key, show_number},
                     name_without(point, key), point.at(key));
        }
        const auto tpot = percentile(result, "tpot_s", "p95");
        if (!tpot) return;
        const double tokens = result.at("throughput_tokens_per_s");
        const std::string name = name_without(point, "");
        per_gpu_.push_back({*tpot, tokens / num_gpus(point), name});
        const auto good = goodput(result);
        const double worth = good.value_or(tokens) / num_gpus(point);
        if (best_ && worth <= best_->worth) return;
        best_ = {worth, num_gpus(point), good, tokens, fmt::format("{}, {}, {}", name, show_bytes(memory), at_rate)};
    }
    // The Pareto front: the points that no other one exceeds in throughput per GPU at the same or a shorter time.
    void add_front() {
        if (per_gpu_.empty()) return;
        std::ranges::sort(per_gpu_, {}, [](const OfGpu& of) { return std::pair(of.tpot_s, -of.tokens_per_s); });
        ChartLine all{.name = "all points", .color = 7, .style = LineStyle::kDotsOnly, .points = {}};
        ChartLine front{.name = "front", .color = 0, .style = LineStyle::kSolid, .points = {}};
        double most = 0;
        for (const auto& [tpot, tokens, name] : per_gpu_) {
            const bool is_best = tokens > most;
            (is_best ? front : all).points.emplace_back(tpot, tokens);
            most = std::max(most, tokens);
        }
        Chart chart{.title = "tokens per second and GPU over time per token, p95",
                    .x = {"time per token, p95", show_seconds},
                    .y = {"tokens per second and GPU", show_number},
                    .lines = {front, all},
                    .limits = {}};
        charts_.insert(charts_.begin(), std::move(chart));
    }
    [[nodiscard]] std::string svgs() {
        std::string text;
        for (Chart& chart : charts_) {
            for (ChartLine& line : chart.lines) {
                if (line.style != LineStyle::kDotsOnly) std::ranges::sort(line.points);
            }
            text += chart_svg(chart);
        }
        return text;
    }
    // GPUs and goodput, or throughput, of the point with the most of it per GPU.
    [[nodiscard]] std::string figures() const {
        if (!best_) return "";
        std::vector<std::pair<std::string, std::string>> shown = {{"GPUs", show_number(best_->gpus)}};
        if (best_->goodput) shown.emplace_back("goodput, requests per second", show_number(*best_->goodput));
        shown.emplace_back("tokens per second", show_number(best_->tokens));
        return page_figures(shown) + fmt::format("<p>The most {} per GPU: {}</p>\n",
                                                 best_->goodput ? "goodput" : "tokens per second",
                                                 xml_escaped(best_->name));
    }

private:
    struct Kind {
        std::string title;
        ChartAxis y;
        std::vector<ChartLimit> limits;
    };
    struct OfGpu {
        double tpot_s;
        double tokens_per_s;
        std::string name;
    };
    struct Best {
        double worth;
        double gpus;
        std::optional<double> goodput;
        double tokens;
        std::string name;
    };

    // The point's values of what distinguishes it from others; that of `axis` apart.
    [[nodiscard]] std::string name_without(const ordered_json& point, const std::string& axis) const {
        std::string name =
            fmt::format("{}, {}", text_of_value(point.at("cache_mode")), text_of_value(point.at("evict")));
        for (const auto& [key, value] : point.items()) {
            if (key == axis || kAxes.contains(key) || kNamedDimensions.contains(key) || !varied_.contains(key))
                continue;
            name +=
                key == "admission" ? ", " + text_of_value(value) : fmt::format(", {} {}", key, text_of_value(value));
        }
        return name;
    }
    void add_over(const ordered_json& result, const std::string& over, const ChartAxis& x, const std::string& name,
                  double at) {
        for (const char* of : {"p99", "p50"}) {
            if (const auto ttft = percentile(result, "ttft_s", of))
                add_point({"time to first token over " + over, time_axis("time to first token"), ttft_limits_}, x, name,
                          of, at, *ttft);
            if (const auto tpot = percentile(result, "tpot_s", of))
                add_point({"time per token over " + over, time_axis("time per token"), tpot_limits_}, x, name, of, at,
                          *tpot);
        }
        if (const auto good = goodput(result))
            add_point({"goodput over " + over, {"requests per second within the objectives", show_number}, {}}, x, name,
                      "", at, *good);
        if (result.contains("throughput_tokens_per_s") && result["throughput_tokens_per_s"].is_number())
            add_point({"tokens per second over " + over, {"tokens per second", show_number}, {}}, x, name, "", at,
                      result["throughput_tokens_per_s"]);
    }
    // Lines of one name have one color; P50 is dashed.
    void add_point(const Kind& kind, const ChartAxis& x_axis, const std::string& name, const std::string& of, double x,
                   double y) {
        auto chart = std::ranges::find(charts_, kind.title, &Chart::title);
        if (chart == charts_.end()) {
            charts_.push_back({kind.title, x_axis, kind.y, {}, kind.limits});
            chart = std::prev(charts_.end());
        }
        const std::string whole = of.empty() ? name : fmt::format("{}, {}", name, of);
        auto line = std::ranges::find(chart->lines, whole, &ChartLine::name);
        if (line == chart->lines.end()) {
            const size_t color = colors_.try_emplace(name, colors_.size()).first->second;
            chart->lines.push_back({whole, color, of == "p50" ? LineStyle::kDashed : LineStyle::kSolid, {}});
            line = std::prev(chart->lines.end());
        }
        line->points.emplace_back(x, y);
    }

    std::set<std::string> varied_;
    std::vector<ChartLimit> ttft_limits_;
    std::vector<ChartLimit> tpot_limits_;
    std::vector<Chart> charts_;
    std::map<std::string, size_t> colors_;
    std::vector<OfGpu> per_gpu_;
    std::optional<Best> best_;
};

// What pictures need of a point: counts of 1 and more, numbers that can be drawn.
Status check_line(const std::string& path, int64_t number, const ordered_json& line) {
    static constexpr double kMost = 1e100;
    for (const char* part : {"point", "result"}) {
        if (!line.contains(part)) continue;
        const auto wrong = [&](const std::string& key, const ordered_json& value, const char* wanted) {
            return error("{}: point {}: {}{}: got {}, wanted {}", path, number, part, key, value.dump(), wanted);
        };
        const ordered_json values = line[part].flatten();
        for (const auto& [key, value] : values.items()) {
            if (value.is_number() && !(std::abs(value.get<double>()) <= kMost))
                return wrong(key, value, "a number of at most 1e100");
        }
        if (part != std::string_view("point") || !line[part].is_object()) continue;
        for (const std::string& key : kCounts) {
            const auto count = line[part].find(key);
            if (count == line[part].end()) continue;
            if (!count->is_number() || count->get<double>() < 1) return wrong("/" + key, *count, "a count from 1 on");
        }
    }
    return {};
}

// The objective that the sweep's requests were counted by: [ttft, tpot, e2e], ns or null.
std::vector<ChartLimit> limits_of(const ordered_json& sweep, size_t place, const char* name) {
    if (!sweep.contains("slo_ns") || sweep["slo_ns"].size() <= place || !sweep["slo_ns"][place].is_number()) return {};
    return {time_limit(name, sweep["slo_ns"][place].get<double>() * 1e-9)};
}

}  // namespace

Result<std::string> sweep_page(const std::string& path) {
    ASSIGN_OR_RETURN(const SweepResults results, read_sweep(path));
    if (results.lines.empty()) return error("{}: has no points yet", path);
    const ordered_json& sweep = results.header.at("sweep");
    const auto text_of = [&](const char* key) {
        return sweep.contains(key) && sweep[key].is_string() ? sweep[key].get<std::string>() : std::string("?");
    };
    const auto size_of_page = [&] { return fmt::format("{} of {}", results.lines.size(), sweep["points"].size()); };
    for (const auto& [number, line] : results.lines) RETURN_IF_ERROR(check_line(path, number, line));
    std::string page;
    try {
        const std::set<std::string> varied = varied_keys(results);
        std::string what;
        for (const char* key : {"model", "device"}) {
            if (!varied.contains(key)) what += (what.empty() ? "" : ", ") + text_of(key);
        }
        if (!what.empty()) what = " (" + what + ")";
        page = page_begin(fmt::format("Which deployment serves {}{} best?", text_of("trace"), what));
        SweepPictures pictures(varied, limits_of(sweep, 0, "ttft"), limits_of(sweep, 1, "tpot"));
        for (const auto& [number, line] : results.lines) pictures.add(line);
        pictures.add_front();
        page += pictures.figures() + fmt::format("<p>{} points.</p>\n", size_of_page());
        if (const auto problems = problems_of(results)) page += fmt::format("<p>{}</p>\n", xml_escaped(*problems));
        page += pictures.svgs();
    } catch (const ordered_json::exception& problem) {
        return error("{}: a point is not one of a sweep: {}", path, problem.what());
    }
    return page + "</body></html>\n";
}

}  // namespace verbatim::tools
