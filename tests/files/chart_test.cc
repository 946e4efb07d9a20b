// Pictures of plans, sweeps and runs: ticks at round values, logarithmic axes, limits, names at the lines.
#include "files/chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <regex>
#include <string>
#include <vector>

namespace verbatim {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Chart, TicksAreRoundValues) {
    EXPECT_THAT(chart_ticks(0, 10, false, 6), ElementsAre(0, 2, 4, 6, 8, 10));
    EXPECT_THAT(chart_ticks(1, 8, false, 6), ElementsAre(2, 4, 6, 8));
    EXPECT_THAT(chart_ticks(0, 0.26, false, 6),
                ElementsAre(0, DoubleNear(0.05, 1e-9), DoubleNear(0.1, 1e-9), DoubleNear(0.15, 1e-9),
                            DoubleNear(0.2, 1e-9), DoubleNear(0.25, 1e-9)));
    EXPECT_THAT(chart_ticks(0.02, 0.5, true, 6),
                ElementsAre(DoubleNear(0.02, 1e-9), DoubleNear(0.05, 1e-9), DoubleNear(0.1, 1e-9),
                            DoubleNear(0.2, 1e-9), DoubleNear(0.5, 1e-9)));
    EXPECT_EQ(chart_ticks(1, 1e6, true, 6).size(), 7u) << "powers of ten alone";
    EXPECT_THAT(chart_ticks(3, 3, false, 6), ElementsAre(3));
    EXPECT_THAT(chart_ticks(0.3, 0.30000000000000004, false, 6), ElementsAre(0.3)) << "a few ulps";
    EXPECT_EQ(chart_ticks(-1e308, 1e308, false, 6).size(), 5u);
    EXPECT_THAT(chart_ticks(0, 5e-324, false, 6), ElementsAre(0));
}

RC_GTEST_PROP(ChartProperties, TicksAscendWithinTheAxis, ()) {
    const double least = *rc::gen::map(rc::gen::inRange(1, 1'000'000), [](int of) { return of * 1e-4; });
    // From 1 + 1e-16, which is 1, to 1e5 times as much.
    const double most = least * (1 + std::pow(10, *rc::gen::inRange(-160, 51) * 0.1));
    for (const bool is_log : {false, true}) {
        const std::vector<double> ticks = chart_ticks(least, most, is_log, 6);
        RC_ASSERT(!ticks.empty() && ticks.size() <= 13u);
        RC_ASSERT(std::ranges::adjacent_find(ticks, std::greater_equal{}) == ticks.end());
        RC_ASSERT(ticks.front() >= least * (1 - 1e-9) && ticks.back() <= most * (1 + 1e-9));
    }
}

RC_GTEST_PROP(ChartProperties, LabelsDoNotOverlap, ()) {
    auto wanted = *rc::gen::container<std::vector<double>>(
        rc::gen::map(rc::gen::inRange(40, 300), [](int y) { return static_cast<double>(y); }));
    std::ranges::sort(wanted);
    const std::vector<double> places = label_places(wanted, 14, 40);
    RC_ASSERT(places.size() == wanted.size());
    for (size_t i = 0; i < places.size(); ++i) {
        RC_ASSERT(places[i] >= 40 - 1e-9);
        if (i > 0) RC_ASSERT(places[i] - places[i - 1] >= 14 - 1e-9);
    }
    if (wanted.size() == 1) RC_ASSERT(places == wanted);
}

std::string seconds(double value) { return show_seconds(value); }

Chart two_lines() {
    return {
        .title = "a < b",
        .x = {"GPUs", show_number},
        .y = {"time to first token", seconds},
        .lines = {{"p99", 0, LineStyle::kSolid, {{1, 4}, {2, 2}, {4, 1}}}, {"p50", 0, LineStyle::kDashed, {{1, 2}}}},
        .limits = {{"at most 3 s", 3}}};
}

// y of the SVG's element that begins with this.
double y_of(const std::string& svg, const std::string& element) {
    std::smatch found;
    const bool is_there = std::regex_search(svg, found, std::regex(element + R"( [^>]*(?:y1|cy)="([0-9.]+)\")"));
    EXPECT_TRUE(is_there) << element;
    return is_there ? std::stod(found[1]) : -1;
}

TEST(Chart, ALimitLiesWhereItsValueDoes) {
    for (const bool is_log : {false, true}) {
        Chart chart = two_lines();
        chart.y.is_log = is_log;
        chart.lines[0].points = {{1, 3}, {2, 1}};
        const std::string svg = chart_svg(chart);
        EXPECT_EQ(y_of(svg, "<line class=\"limit\""), y_of(svg, "<circle")) << "the first point has the limit's value";
        EXPECT_THAT(svg, HasSubstr("at most 3 s</text>"));
    }
}

TEST(Chart, ALogarithmicAxisGivesEqualFactorsEqualDistances) {
    Chart chart = two_lines();
    chart.limits.clear();
    chart.lines = {{"line", 0, LineStyle::kSolid, {{1, 0.01}, {2, 0.1}, {3, 1}}}};
    chart.y.is_log = needs_log(chart);
    ASSERT_TRUE(chart.y.is_log);
    const std::string svg = chart_svg(chart);
    std::vector<double> ys;
    const std::regex circle(R"(<circle cx="[0-9.]+" cy="([0-9.]+)\")");
    for (std::sregex_iterator next(svg.begin(), svg.end(), circle); next != std::sregex_iterator(); ++next)
        ys.push_back(std::stod((*next)[1]));
    ASSERT_EQ(ys.size(), 3u);
    EXPECT_NEAR(ys[0] - ys[1], ys[1] - ys[2], 0.11);
    EXPECT_GT(ys[0], ys[1]) << "more is higher";
    chart.lines[0].points = {{1, 1}, {2, 19}};
    EXPECT_FALSE(needs_log(chart));
    chart.limits = {{"at most 20", 20}};
    EXPECT_TRUE(needs_log(chart)) << "a limit has to be seen, too";
    chart.lines[0].points = {{1, 0}, {2, 100}};
    EXPECT_FALSE(needs_log(chart));
}

TEST(Chart, NamesAndUnitsAreThereAndTextIsEscaped) {
    const std::string svg = chart_svg(two_lines());
    for (const char* text : {">a &lt; b</text>", ">GPUs</text>", ">time to first token</text>", ">p99</text>",
                             ">p50</text>", ">4 s</text>", "stroke-dasharray=\"3 3\""})
        EXPECT_THAT(svg, HasSubstr(text));
    EXPECT_THAT(svg, Not(HasSubstr("a < b")));
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
    EXPECT_THAT(svg, HasSubstr(">0</text>"));
    EXPECT_THAT(svg, Not(HasSubstr(">-0")));
    EXPECT_EQ(show_seconds(0.0123), "12.3 ms");
    EXPECT_EQ(show_seconds(2e-5), "20 us");
    EXPECT_EQ(show_number(123456), "123.5 k");
}

}  // namespace
}  // namespace verbatim
