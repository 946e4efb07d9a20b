// files/chart.h: a picture of lines over two axes, as SVG: ticks at round values, linear or logarithmic axes,
// limits as dashed lines across, and each line's name at its right end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace verbatim {

struct ChartAxis {
    std::string label;  // what it shows
    std::function<std::string(double)> show;
    bool is_log = false;             // values of 0 and below lie at the least value above 0
    bool is_log_where_wide = false;  // of y: logarithmic where needs_log()
};

enum class LineStyle : uint8_t { kSolid, kDashed, kDotsOnly };

struct ChartLine {
    std::string name;
    size_t color = 0;  // lines of one color belong together
    LineStyle style = LineStyle::kSolid;
    std::vector<std::pair<double, double>> points;  // x ascends, unless there are dots only
};

// A value of y that is not to be exceeded.
struct ChartLimit {
    std::string name;
    double y = 0;
};
// "ttft: at most 2 s", on an axis of seconds.
[[nodiscard]] ChartLimit time_limit(const std::string& name, double limit_s);

struct Chart {
    std::string title;
    ChartAxis x;
    ChartAxis y;
    std::vector<ChartLine> lines;
    std::vector<ChartLimit> limits;
};

// Round values from `least` to `most`, about `wanted` of them and two at least where the values differ: 1, 2 or 5 times
// a power of ten, or with `is_log` powers of ten (and 2 and 5 times these, where the range is short). REQUIRES: finite,
// least <= most; with is_log above 0.
[[nodiscard]] std::vector<double> chart_ticks(double least, double most, bool is_log, int wanted);

// Whether values of y and limits are above 0 and differ by a factor of 20 or more.
[[nodiscard]] bool needs_log(const Chart& chart);

// Where labels of this height stand that are wanted at these places, in their order: each as near as the others allow,
// none above `top`.
[[nodiscard]] std::vector<double> label_places(const std::vector<double>& wanted, double height, double top);

// Lines without points are left out; "" where all are. REQUIRES: finite values.
[[nodiscard]] std::string chart_svg(const Chart& chart);

[[nodiscard]] std::string show_seconds(double seconds);  // "2 s", "50 ms", "800 us"
[[nodiscard]] std::string show_number(double number);    // "12.3 k"
[[nodiscard]] ChartAxis time_axis(std::string label);    // of seconds, logarithmic where they are far apart

// The begin of a page that needs no network: its title and question. "</body></html>\n" ends it.
[[nodiscard]] std::string page_begin(const std::string& title);
// A row of figures, each with what it is of.
[[nodiscard]] std::string page_figures(const std::vector<std::pair<std::string, std::string>>& figures);

}  // namespace verbatim
