#include "tools/plan/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "files/chart.h"
#include "files/xml.h"
#include "tools/plan/report.h"

namespace verbatim::tools {
namespace {

constexpr size_t kMostCandidates = 8;  // as many as there are colors

struct Shown {
    std::string name;
    const CandidatePlan* candidate;
};

// The answer and the runner-up; with neither, or for all candidates, in the order that was asked.
std::vector<Shown> chosen(const Plan& plan) {
    std::vector<Shown> shown;
    if (plan.answer) shown.push_back({"answer", &plan.candidates[*plan.answer]});
    if (plan.runner_up) shown.push_back({"runner-up", &plan.candidates[*plan.runner_up]});
    return shown;
}
std::vector<Shown> all_tried(const Plan& plan) {
    std::vector<Shown> shown = chosen(plan);
    for (size_t i = 0; i < plan.candidates.size() && shown.size() < kMostCandidates; ++i) {
        if (plan.candidates[i].tried.empty() || plan.answer == i || plan.runner_up == i) continue;
        shown.push_back({label_of(plan, plan.candidates[i].candidate), &plan.candidates[i]});
    }
    return shown;
}

ChartAxis asked_axis(const Plan& plan) {
    if (plan.config.rates) return {"times the trace's rate", [](double x) { return fmt::format("x {:.3g}", x); }};
    return {"GPUs", [](double x) { return fmt::format("{:.4g}", x); }};
}

double asked(const Plan& plan, const Trial& trial) {
    return plan.config.rates ? trial.rate_scale : static_cast<double>(trial.num_gpus);
}

using Value = std::function<std::optional<double>(const Trial&)>;
ChartLine line_of(const Plan& plan, const Shown& shown, const std::string& what, size_t color, LineStyle style,
                  const Value& value) {
    ChartLine line{.name = what.empty() ? shown.name : fmt::format("{}, {}", shown.name, what),
                   .color = color,
                   .style = style,
                   .points = {}};
    for (const Trial& trial : shown.candidate->tried) {
        if (const auto y = value(trial)) line.points.emplace_back(asked(plan, trial), *y);
    }
    return line;
}

const Distribution& distribution(const Trial& trial, Latency latency) {
    switch (latency) {
        case Latency::kTtft: return trial.ttft;
        case Latency::kTpot: return trial.tpot;
        case Latency::kE2e: return trial.e2e;
    }
    CHECK(false, "latency {}", static_cast<int>(latency));
}

const char* title_of(Latency latency) {
    switch (latency) {
        case Latency::kTtft: return "time to first token";
        case Latency::kTpot: return "time per token";
        case Latency::kE2e: return "end to end";
    }
    CHECK(false, "latency {}", static_cast<int>(latency));
}

// P50 and P99 of the answer and the runner-up, every objective's own percentile, and the limits.
std::string latency_chart(const Plan& plan, Latency latency, const std::vector<Shown>& candidates) {
    Chart chart{.title = fmt::format("{} over {}", title_of(latency), asked_axis(plan).label),
                .x = asked_axis(plan),
                .y = time_axis(title_of(latency)),
                .lines = {},
                .limits = {}};
    for (size_t color = 0; color < candidates.size(); ++color) {
        bool has_p99 = false;
        bool has_p50 = false;
        for (size_t i = 0; i < plan.config.objectives.size(); ++i) {
            const Objective& objective = plan.config.objectives[i];
            if (objective.latency != latency) continue;
            has_p99 |= objective.percentile == 99;
            has_p50 |= objective.percentile == 50;
            const std::string percentile = name(objective).substr(0, name(objective).find(':'));
            chart.lines.push_back(line_of(plan, candidates[color], percentile, color, LineStyle::kSolid,
                                          [i](const Trial& trial) -> std::optional<double> {
                                              if (!trial.measured[i].has_value) return std::nullopt;
                                              return static_cast<double>(trial.measured[i].value_ns) * 1e-9;
                                          }));
        }
        const auto add = [&](const char* what, auto value) {
            chart.lines.push_back(line_of(plan, candidates[color], what, color, LineStyle::kDashed,
                                          [&](const Trial& trial) -> std::optional<double> {
                                              const Distribution& times = distribution(trial, latency);
                                              return times.count > 0 ? std::optional(times.*value) : std::nullopt;
                                          }));
        };
        if (!has_p99) add("p99", &Distribution::p99);
        if (!has_p50) add("p50", &Distribution::p50);
    }
    for (const Objective& objective : plan.config.objectives) {
        if (objective.latency != latency) continue;
        chart.limits.push_back(time_limit(name(objective), static_cast<double>(objective.limit_ns) * 1e-9));
    }
    return chart_svg(chart);
}

std::string goodput_chart(const Plan& plan) {
    Chart chart{.title = fmt::format("goodput over {}", asked_axis(plan).label),
                .x = asked_axis(plan),
                .y = {"requests per second within all limits", show_number},
                .lines = {},
                .limits = {}};
    for (const Shown& shown : all_tried(plan)) {
        chart.lines.push_back(line_of(plan, shown, "", chart.lines.size(), LineStyle::kSolid,
                                      [](const Trial& trial) { return trial.goodput_per_s(); }));
    }
    return chart_svg(chart);
}

std::string figures(const Plan& plan) {
    if (!plan.answer) return page_figures({{"GPUs", "none of what was asked"}});
    const CandidatePlan& answer = plan.candidates[*plan.answer];
    const Trial& best = *answer.best;
    std::vector<std::pair<std::string, std::string>> shown = {{"GPUs", fmt::format("{}", best.num_gpus)}};
    if (plan.config.rates) shown.emplace_back("times the trace's rate", fmt::format("{:.3g}", best.rate_scale));
    shown.emplace_back("goodput, requests per second", fmt::format("{:.3g}", best.goodput_per_s()));
    const double share = 100.0 * static_cast<double>(best.within_limits) / static_cast<double>(best.answered);
    shown.emplace_back("within all limits", fmt::format("{:.2f} %", share));
    const Costs costs = costs_of(plan, answer.candidate, best);
    if (costs.dollars_per_million_tokens)
        shown.emplace_back("per million tokens of answers", fmt::format("$ {:.3g}", *costs.dollars_per_million_tokens));
    if (costs.joules_per_token)
        shown.emplace_back("per token of answers, at full power", fmt::format("{:.3g} J", *costs.joules_per_token));
    return page_figures(shown);
}

}  // namespace

std::string plan_page(const Plan& plan) {
    std::string page = page_begin(question(plan)) + figures(plan);
    if (plan.bounds) page += fmt::format("<p>Bounds: {}.</p>\n", xml_escaped(bounds_sentence(plan)));
    std::vector<Shown> candidates = chosen(plan);
    if (candidates.empty()) candidates = all_tried(plan);
    page += goodput_chart(plan);
    for (const Latency latency : {Latency::kTtft, Latency::kTpot, Latency::kE2e}) {
        if (std::ranges::count(plan.config.objectives, latency, &Objective::latency) > 0)
            page += latency_chart(plan, latency, candidates);
    }
    page += "<h2>Why</h2>\n<ul>\n";
    for (const CandidatePlan& candidate : plan.candidates) {
        page += fmt::format("<li><b>{}</b>: {}</li>\n", xml_escaped(label_of(plan, candidate.candidate)),
                            xml_escaped(explanation(plan, candidate)));
    }
    return page + "</ul>\n<pre>" + xml_escaped(plan_table(plan)) + "</pre>\n</body></html>\n";
}

}  // namespace verbatim::tools
