// The picture of `kernel roofline`.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "files/svg.h"
#include "tools/kernel/report.h"

namespace verbatim::tools {

using namespace sandbox;

namespace {

constexpr int kWidth = 760, kHeight = 480;
constexpr int kLeft = 70, kRight = 730, kTop = 40, kBottom = 420;

// From 10^low to 10^high over the places from `begin` to `end`.
struct LogAxis {
    double low, high;
    int begin, end;

    [[nodiscard]] int place(double value) const {
        const double share = (std::log10(value) - low) / (high - low);
        return begin + static_cast<int>(std::lround(std::clamp(share, 0.0, 1.0) * (end - begin)));
    }
};

std::string line(int x1, int y1, int x2, int y2, const char* colour) {
    return fmt::format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{}\"/>\n", x1, y1, x2, y2, colour);
}

std::string axes(const LogAxis& x, const LogAxis& y) {
    std::string svg;
    for (double decade = x.low; decade <= x.high; ++decade) {
        const int at = x.place(std::pow(10.0, decade));
        svg += line(at, kTop, at, kBottom, "#dddddd");
        svg += svg_text(at, kBottom + 18, fmt::format("{:g}", std::pow(10.0, decade)), "text-anchor=\"middle\"");
    }
    for (double decade = y.low; decade <= y.high; ++decade) {
        const int at = y.place(std::pow(10.0, decade));
        svg += line(kLeft, at, kRight, at, "#dddddd");
        svg += svg_text(kLeft - 6, at + 4, fmt::format("{:g}", std::pow(10.0, decade)), "text-anchor=\"end\"");
    }
    svg += svg_text((kLeft + kRight) / 2, kBottom + 40, "floating-point operations per byte", "text-anchor=\"middle\"");
    return svg + svg_text(kLeft, kTop - 14, "GFLOP/s");
}

std::string point(const LogAxis& x, const LogAxis& y, double intensity, double gflops, const char* colour,
                  const std::string& what) {
    return fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"5\" fill=\"{}\"><title>", x.place(intensity), y.place(gflops),
                       colour) +
           what + "</title></circle>\n";
}

}  // namespace

std::string roofline_svg(const KernelReports& reports) {
    const LogAxis x{-2, 3, kLeft, kRight};
    const LogAxis y{-2, 4, kBottom, kTop};
    const MachineLimits& limits = reports.limits;
    const double stream = limits.stream_bytes_per_s * 1e-9;
    const double peak = limits.peak_flops() * 1e-9;
    const double ridge = peak / stream;
    std::string svg = svg_begin(kWidth, kHeight) + axes(x, y);
    svg += line(x.place(0.01), y.place(0.01 * stream), x.place(ridge), y.place(peak), "black");
    svg += line(x.place(ridge), y.place(peak), x.place(1000), y.place(peak), "black");
    svg += svg_text(x.place(ridge), y.place(peak) - 8, fmt::format("{:.1f} GB/s, {:.1f} GFLOP/s", stream, peak));
    for (const KernelReport& report : reports.reports) {
        for (const PerfRow& row : report.perf) {
            const double intensity = row.work.flops / row.work.bytes;
            const std::string shape = fmt::format("{}, {}", row.shape, row.cold ? "cold" : "warm");
            if (row.builtin_median_s > 0)
                svg += point(x, y, intensity, row.gflops() / row.of_builtin(), "#999999", "built-in: " + shape);
            svg += point(x, y, intensity, row.gflops(), row.cold ? "#1f77b4" : "#d62728", report.kernel + ": " + shape);
        }
    }
    svg += svg_text(kLeft, kHeight - 8, "red: warm caches; blue: cold; grey: the built-in kernel");
    return svg + "</svg>\n";
}

}  // namespace verbatim::tools
