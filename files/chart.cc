#include "files/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/base/check.h"
#include "files/svg.h"
#include "files/xml.h"

namespace verbatim {
namespace {

constexpr int kWidth = 1000;
constexpr int kHeight = 330;
constexpr int kLeft = 80;
constexpr int kRight = 640;
constexpr int kTop = 44;
constexpr int kBottom = 270;
constexpr int kLabelHeight = 14;
constexpr double kLogFactor = 20;
constexpr int kTicks = 6;
constexpr size_t kMostDots = 100;
constexpr std::array kColors = {"#0b62c4", "#c25400", "#087f5b", "#c2255c", "#6741d9", "#0c8599", "#946200", "#495057"};
const char* const kLimitColor = "#b00020";

// The values of one axis, and where they lie between its ends.
class Scale {
public:
    Scale(double least, double most, bool is_log) : least_(least), most_(most), is_log_(is_log) {
        CHECK(std::isfinite(least) && std::isfinite(most) && least <= most, "from {} to {}", least, most);
        CHECK(!is_log || least > 0, "a logarithmic axis from {}", least);
    }
    [[nodiscard]] double share(double value) const {
        if (most_ == least_) return 0.5;
        if (!is_log_) return (value - least_) / (most_ - least_);
        return std::log(std::max(value, least_) / least_) / std::log(most_ / least_);
    }
    [[nodiscard]] std::vector<double> ticks() const { return chart_ticks(least_, most_, is_log_, kTicks); }

private:
    double least_;
    double most_;
    bool is_log_;
};

// Of an axis whose values are all of `values`. A linear one that begins near 0 begins there.
Scale scale_of(std::vector<double> values, bool is_log) {
    if (is_log) std::erase_if(values, [](double value) { return value <= 0; });
    if (values.empty()) return {is_log ? 1.0 : 0.0, 1, is_log};
    const auto [least, most] = std::ranges::minmax(values);
    if (is_log) return {least, most, true};
    return {least > 0 && least < 0.5 * most ? 0 : least, most, false};
}

std::vector<double> all_y(const Chart& chart) {
    std::vector<double> values;
    for (const ChartLine& line : chart.lines) {
        for (const auto& [x, y] : line.points) values.push_back(y);
    }
    for (const ChartLimit& limit : chart.limits) values.push_back(limit.y);
    CHECK(!values.empty(), "{}: a chart without points", chart.title);
    return values;
}

class Picture {
public:
    explicit Picture(const Chart& chart)
        : chart_(chart),
          x_(scale_of(xs(chart), chart.x.is_log)),
          y_(scale_of(all_y(chart), chart.y.is_log || (chart.y.is_log_where_wide && needs_log(chart)))) {}

    std::string svg() {
        out_ = svg_text(kLeft, 20, chart_.title, "font-weight=\"bold\" font-size=\"14\"");
        add_axes();
        for (const ChartLimit& limit : chart_.limits) add_limit(limit);
        for (const ChartLine& line : chart_.lines) add_line(line);
        const int labels_end = add_labels();
        return svg_begin(kWidth, std::max(kHeight, labels_end)) + out_ + "</svg>\n";
    }

private:
    struct Label {
        double y;
        std::string name;
        std::string color;
    };

    static std::vector<double> xs(const Chart& chart) {
        std::vector<double> values;
        for (const ChartLine& line : chart.lines) {
            for (const auto& [x, y] : line.points) values.push_back(x);
        }
        CHECK(!values.empty(), "{}: a chart without points", chart.title);
        return values;
    }
    [[nodiscard]] double px(double x) const { return kLeft + (kRight - kLeft) * x_.share(x); }
    [[nodiscard]] double py(double y) const { return kBottom - (kBottom - kTop) * y_.share(y); }

    void add_axes() {
        for (const double y : y_.ticks()) {
            out_ += fmt::format("<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#e3e3e3\"/>\n", kLeft,
                                kRight, py(y), py(y));
            out_ += svg_text(kLeft - 6, static_cast<int>(py(y)) + 4, chart_.y.show(y), "text-anchor=\"end\"");
        }
        for (const double x : x_.ticks()) {
            out_ += fmt::format("<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#888\"/>\n", px(x),
                                kBottom, kBottom + 5);
            out_ += svg_text(static_cast<int>(px(x)), kBottom + 18, chart_.x.show(x), "text-anchor=\"middle\"");
        }
        out_ +=
            fmt::format("<path d=\"M{0} {1}V{2}H{3}\" fill=\"none\" stroke=\"#888\"/>\n", kLeft, kTop, kBottom, kRight);
        out_ += svg_text((kLeft + kRight) / 2, kBottom + 40, chart_.x.label, "text-anchor=\"middle\" fill=\"#444\"");
        out_ += svg_text(kLeft, kTop - 8, chart_.y.label, "fill=\"#444\"");
    }
    void add_limit(const ChartLimit& limit) {
        out_ += fmt::format(
            "<line class=\"limit\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
            "stroke-dasharray=\"7 4\"/>\n",
            kLeft, kRight, py(limit.y), py(limit.y), kLimitColor);
        labels_.push_back({py(limit.y), limit.name, kLimitColor});
    }
    void add_line(const ChartLine& line) {
        if (line.points.empty()) return;
        const char* const color = kColors[line.color % kColors.size()];
        std::string path;
        const bool has_dots = line.points.size() <= kMostDots;
        for (const auto& [x, y] : line.points) {
            path += fmt::format("{:.1f},{:.1f} ", px(x), py(y));
            if (!has_dots) continue;
            out_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"><title>{}</title></circle>\n",
                                px(x), py(y), color,
                                xml_escaped(fmt::format("{}: {}, {}", line.name, chart_.x.show(x), chart_.y.show(y))));
        }
        if (line.style != LineStyle::kDotsOnly) {
            out_ += fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\"{} points=\"{}\"/>\n", color,
                                line.style == LineStyle::kDashed ? " stroke-dasharray=\"3 3\"" : "", path);
        }
        labels_.push_back({py(line.points.back().second), line.name, color});
    }
    // Where the last one ends.
    int add_labels() {
        std::ranges::stable_sort(labels_, {}, &Label::y);
        std::vector<double> wanted;
        for (const Label& label : labels_) wanted.push_back(label.y);
        const std::vector<double> places = label_places(wanted, kLabelHeight, kTop);
        for (size_t i = 0; i < labels_.size(); ++i) {
            out_ += svg_text(kRight + 10, static_cast<int>(places[i]) + 4, labels_[i].name,
                             fmt::format("fill=\"{}\"", labels_[i].color));
        }
        return places.empty() ? 0 : static_cast<int>(places.back()) + kLabelHeight;
    }

    const Chart& chart_;
    Scale x_;
    Scale y_;
    std::string out_;
    std::vector<Label> labels_;
};

}  // namespace

std::vector<double> chart_ticks(double least, double most, bool is_log, int wanted) {
    CHECK(std::isfinite(least) && std::isfinite(most) && least <= most && wanted > 1, "from {} to {}", least, most);
    CHECK(!is_log || least > 0, "logarithmic ticks from {}", least);
    // Values that a label does not tell apart are one; steps of them would be lost in rounding.
    if (most - least <= 1e-9 * std::max(std::abs(least), std::abs(most))) return {least};
    std::vector<double> ticks;
    if (is_log && most / least >= 10) {
        const bool is_short = most / least < 2000;
        const auto last_exponent = static_cast<int>(std::floor(std::log10(most)));
        for (auto exponent = static_cast<int>(std::floor(std::log10(least))); exponent <= last_exponent; ++exponent) {
            const double power = std::pow(10, exponent);
            for (const double factor : {1.0, 2.0, 5.0}) {
                const double tick = power * factor;
                if (tick >= least && tick <= most && (factor == 1 || is_short)) ticks.push_back(tick);
            }
        }
        return ticks;
    }
    const double power = std::pow(10, std::floor(std::log10(most / wanted - least / wanted)));
    if (power == 0) return {least};
    double step = power;
    for (const double factor : {2.0, 5.0, 10.0}) {
        if (most / step - least / step > wanted) step = power * factor;
    }
    const double first = std::ceil(least / step - 1e-9);
    const double num_steps = std::floor(most / step + 1e-9) - first;
    // The sum with 0 is never -0.
    for (int i = 0; i <= wanted && i <= num_steps; ++i) ticks.push_back((first + i) * step + 0.0);
    return ticks;
}

bool needs_log(const Chart& chart) {
    const std::vector<double> values = all_y(chart);
    const auto [least, most] = std::ranges::minmax(values);
    return least > 0 && most >= kLogFactor * least;
}

std::vector<double> label_places(const std::vector<double>& wanted, double height, double top) {
    std::vector<double> places = wanted;
    double free_from = top;
    for (double& place : places) {
        place = std::max(place, free_from);
        free_from = place + height;
    }
    // Pushed down by those above: the whole row of neighbours moves up by half of what the last one was moved.
    for (size_t end = places.size(); end > 0;) {
        size_t begin = end - 1;
        while (begin > 0 && places[begin] - places[begin - 1] <= height) --begin;
        const double room = begin == 0 ? places[0] - top : places[begin] - places[begin - 1] - height;
        const double up = std::min(room, (places[end - 1] - wanted[end - 1]) / 2);
        for (size_t i = begin; i < end; ++i) places[i] -= up;
        end = begin;
    }
    return places;
}

std::string chart_svg(const Chart& chart) {
    const auto is_empty = [](const ChartLine& line) { return line.points.empty(); };
    return std::ranges::all_of(chart.lines, is_empty) ? "" : Picture(chart).svg();
}

ChartLimit time_limit(const std::string& name, double limit_s) {
    return {fmt::format("{}: at most {}", name, show_seconds(limit_s)), limit_s};
}

std::string show_seconds(double seconds) {
    if (seconds == 0) return "0";
    if (std::abs(seconds) < 1e-3) return fmt::format("{:.3g} us", seconds * 1e6);
    if (std::abs(seconds) < 1) return fmt::format("{:.3g} ms", seconds * 1e3);
    return fmt::format("{:.4g} s", seconds);
}

std::string show_number(double number) {
    if (std::abs(number) >= 1e9) return fmt::format("{:.4g} G", number / 1e9);
    if (std::abs(number) >= 1e6) return fmt::format("{:.4g} M", number / 1e6);
    if (std::abs(number) >= 1e4) return fmt::format("{:.4g} k", number / 1e3);
    return fmt::format("{:.4g}", number);
}

ChartAxis time_axis(std::string label) {
    return {.label = std::move(label), .show = show_seconds, .is_log_where_wide = true};
}

std::string page_begin(const std::string& title) {
    return fmt::format(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
        "<meta name=\"viewport\" content=\"width=device-width\"><title>{0}</title>\n"
        "<style>body{{font-family:sans-serif;margin:2em;max-width:1000px;color:#222}}"
        "h1{{font-size:1.4em;overflow-wrap:anywhere}}@media(max-width:760px){{body{{overflow-x:auto}}"
        "svg{{max-width:none!important}}}}"
        "svg{{display:block;margin:1.5em 0;max-width:100%;height:auto}}"
        "dl{{display:flex;flex-wrap:wrap;gap:1em 2.5em;margin:1em 0}}dl div{{display:flex;flex-direction:column}}"
        "dt{{order:2;color:#555}}dd{{margin:0;font-size:1.8em;font-weight:bold}}"
        "pre{{overflow-x:auto;font-size:0.85em}}li{{margin:0.4em 0}}</style></head><body>\n<h1>{0}</h1>\n",
        xml_escaped(title));
}

std::string page_figures(const std::vector<std::pair<std::string, std::string>>& figures) {
    std::string text = "<dl>\n";
    for (const auto& [name, value] : figures)
        text += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", xml_escaped(name), xml_escaped(value));
    return text + "</dl>\n";
}

}  // namespace verbatim
