// The picture of `verbatim trace stats`: arrivals over time, lengths, and where the prompt tokens come from.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "files/svg.h"
#include "tools/trace/report.h"

namespace verbatim::tools {
namespace {

using namespace verbatim::traces;

constexpr int kWidth = 760;
constexpr int kLeft = 60;
constexpr int kPlotHeight = 150;
constexpr int kPlotWidth = kWidth - kLeft - 20;
constexpr std::array<const char*, 6> kColours = {"#2166ac", "#67a9cf", "#d1e5f0", "#fddbc7", "#ef8a62", "#b2182b"};

// Bars of one series, the highest as high as the plot.
std::string bars(int top, std::string_view title, const std::vector<int64_t>& counts, std::string_view first,
                 std::string_view last) {
    const int64_t highest = std::max<int64_t>(1, counts.empty() ? 1 : *std::max_element(counts.begin(), counts.end()));
    std::string svg = svg_text(kLeft, top - 8, title, "font-weight=\"bold\"");
    svg += svg_text(kLeft - 6, top + 10, std::to_string(highest), "text-anchor=\"end\"");
    svg += svg_text(kLeft - 6, top + kPlotHeight, "0", "text-anchor=\"end\"");
    const double width = static_cast<double>(kPlotWidth) / static_cast<double>(std::max<size_t>(1, counts.size()));
    for (size_t i = 0; i < counts.size(); ++i) {
        const double height = static_cast<double>(counts[i]) / static_cast<double>(highest) * kPlotHeight;
        svg += fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"/>\n",
                           kLeft + static_cast<double>(i) * width, top + kPlotHeight - height, width * 0.9, height,
                           kColours[0]);
    }
    svg += fmt::format("<line x1=\"{0}\" y1=\"{1}\" x2=\"{2}\" y2=\"{1}\" stroke=\"#333\"/>\n", kLeft,
                       top + kPlotHeight, kLeft + kPlotWidth);
    svg += svg_text(kLeft, top + kPlotHeight + 16, first);
    svg += svg_text(kLeft + kPlotWidth, top + kPlotHeight + 16, last, "text-anchor=\"end\"");
    return svg;
}

std::vector<int64_t> arrivals_over_time(const Trace& trace) {
    constexpr size_t kBins = 120;
    std::vector<int64_t> counts(kBins);
    if (trace.rows.empty()) return counts;
    const int64_t span = trace.rows.back().arrival_ns + 1;
    for (const Row& row : trace.rows) {
        if (is_request(row.event))
            ++counts[static_cast<size_t>(static_cast<double>(row.arrival_ns) / static_cast<double>(span) * kBins)];
    }
    return counts;
}

// By powers of two: entry k counts lengths in [2^(k-1), 2^k).
template <typename F>
std::vector<int64_t> by_powers(const Trace& trace, F length) {
    std::vector<int64_t> counts;
    for (const Row& row : trace.rows) {
        if (!is_request(row.event)) continue;
        const auto bin = static_cast<size_t>(std::bit_width(static_cast<uint64_t>(length(row))));
        if (counts.size() <= bin) counts.resize(bin + 1);
        ++counts[bin];
    }
    return counts;
}

std::string sources(int top, const TraceStats& stats) {
    const std::array<std::pair<const char*, int64_t>, 6> parts = {{{"continuation", stats.by_continuation},
                                                                   {"rewrite", stats.by_rewrite},
                                                                   {"edit", stats.by_edit},
                                                                   {"own, said in the session", stats.repeated_within},
                                                                   {"own, said elsewhere", stats.repeated_across},
                                                                   {"own, new", stats.new_tokens}}};
    std::string svg = svg_text(kLeft, top - 8, "where the prompt tokens come from", "font-weight=\"bold\"");
    double x = kLeft;
    int y = top + 54;
    for (size_t i = 0; i < parts.size(); ++i) {
        const double share = stats.prompt_total == 0
                                 ? 0
                                 : static_cast<double>(parts[i].second) / static_cast<double>(stats.prompt_total);
        svg += fmt::format("<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"30\" fill=\"{}\"/>\n", x, top,
                           share * kPlotWidth, kColours[i]);
        x += share * kPlotWidth;
        svg += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n", kLeft, y - 10,
                           kColours[i]);
        svg += svg_text(kLeft + 20, y,
                        fmt::format("{}: {} tokens, {:.2f} %", parts[i].first, parts[i].second, 100 * share));
        y += 18;
    }
    return svg;
}

}  // namespace

std::string trace_svg(const TraceReport& report, const Trace& trace) {
    const auto longest = [](const std::vector<int64_t>& counts) {
        return fmt::format("< 2^{} tokens", counts.empty() ? 0 : counts.size() - 1);
    };
    const auto prompts = by_powers(trace, [](const Row& row) { return row.prompt_tokens; });
    const auto outputs = by_powers(trace, [](const Row& row) { return std::max<int64_t>(row.max_tokens, 0); });
    constexpr int kHeight = 880;
    std::string svg = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
        "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
        kWidth, kHeight);
    svg += svg_text(kLeft, 24,
                    fmt::format("{}: {} requests, {} conversations", report.file, report.stats.requests,
                                report.stats.conversations),
                    "font-size=\"16\"");
    svg += bars(70, "arrivals", arrivals_over_time(trace), "0 s",
                fmt::format("{:.0f} s", static_cast<double>(report.stats.duration_ns) / 1e9));
    svg += bars(280, "prompts by length (powers of two)", prompts, "0", longest(prompts));
    svg += bars(490, "outputs by length (powers of two)", outputs, "0", longest(outputs));
    svg += sources(700, report.stats);
    return svg + "</svg>\n";
}

}  // namespace verbatim::tools
