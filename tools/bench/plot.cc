// The picture of `verbatim bench`: every row as a share of the machine's limit.
#include <fmt/format.h>

#include "files/svg.h"
#include "tools/bench/report.h"

namespace verbatim::tools {

using namespace bench;
namespace {

constexpr int kWidth = 800;
constexpr int kLeft = 270;  // of the bars; the rows' names stand before them
constexpr int kTop = 80;
constexpr int kRowHeight = 24;
constexpr int kBarHeight = 16;
constexpr int kFullWidth = 380;  // of a bar at the limit

std::string bar(int y, double share, const char* colour) {
    return fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"/>\n", kLeft, y,
                       share * kFullWidth, kBarHeight, colour);
}

std::string row_svg(int y, const BenchRow& row, const RowFigures& figures) {
    const int text_y = y + kBarHeight - 4;
    std::string svg = svg_text(
        kLeft - 8, text_y, fmt::format("{}, {}, batch {}, {} tokens", row.phase, row.profile, row.batch, row.context),
        "text-anchor=\"end\"");
    svg += bar(y, 1, "#d1e5f0") + bar(y, figures.of_limit, row.wrong ? "#b2182b" : "#2166ac");
    const std::string figure =
        row.load ? fmt::format("{:.2f} GB/s", figures.gbps) : fmt::format("{:.1f} tokens/s", figures.tokens_per_s);
    return svg + svg_text(kLeft + kFullWidth + 8, text_y, fmt::format("{:.0f} %, {}", 100 * figures.of_limit, figure));
}

}  // namespace

std::string bench_svg(const BenchReport& report) {
    const int height = kTop + kRowHeight * static_cast<int>(report.rows.size()) + 20;
    std::string svg = svg_begin(kWidth, height);
    svg += svg_text(20, 28, fmt::format("{}: share of the machine's limit", report.config.model), "font-size=\"16\"");
    svg += svg_text(20, 50,
                    fmt::format("{} threads, {}: stream {:.1f} GB/s, fma {:.0f} GFLOP/s, vdpbf16ps {:.0f} GFLOP/s",
                                report.config.num_threads, report.isa, report.machine.stream_bytes_per_s / 1e9,
                                report.machine.fma_flops / 1e9, report.machine.dpbf16_flops / 1e9));
    int y = kTop;
    for (const BenchRow& row : report.rows) {
        svg += row_svg(y, row, figures_of(row, report.machine));
        y += kRowHeight;
    }
    return svg + "</svg>\n";
}

}  // namespace verbatim::tools
