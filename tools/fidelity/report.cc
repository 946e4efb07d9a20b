#include <algorithm>

#include "tools/fidelity/fidelity.h"
#include "tools/program/cli.h"

namespace verbatim::tools {
namespace {

std::vector<double> sorted_reals(const LoadFidelity& load, const FigureName& figure) {
    std::vector<double> values;
    for (const RunFigures& run : load.real) values.push_back(run.*figure.figure);
    std::ranges::sort(values);
    return values;
}

double median_of_reals(const LoadFidelity& load, const FigureName& figure) {
    const std::vector<double> values = sorted_reals(load, figure);
    return values[values.size() / 2];
}

std::string name_of(const LoadFidelity& load) {
    return load.load == 0 ? "all at once" : fmt::format("{:.0f} %, {:.1f}/s", 100 * load.load, load.rate);
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

}  // namespace

std::vector<FigureName> figure_names() {
    return {{"e2e p50", &RunFigures::e2e_p50},      {"e2e p95", &RunFigures::e2e_p95},
            {"ttft p50", &RunFigures::ttft_p50},    {"ttft p95", &RunFigures::ttft_p95},
            {"tpot p50", &RunFigures::tpot_p50},    {"tpot p95", &RunFigures::tpot_p95},
            {"tokens/s", &RunFigures::tokens_per_s}};
}

double error_of(const LoadFidelity& load, const FigureName& figure) {
    const double real = median_of_reals(load, figure);
    return real > 0 ? load.simulated.*figure.figure / real - 1 : 0;
}

double spread_of(const LoadFidelity& load, const FigureName& figure) {
    const std::vector<double> values = sorted_reals(load, figure);
    const double middle = values[values.size() / 2];
    return middle > 0 ? (values.back() - values.front()) / middle : 0;
}

nlohmann::ordered_json fidelity_json(const Fidelity& fidelity) {
    nlohmann::ordered_json loads = nlohmann::ordered_json::array();
    for (const LoadFidelity& load : fidelity.loads) {
        nlohmann::ordered_json figures;
        for (const FigureName& figure : figure_names()) {
            figures[figure.name] = {{"simulated", load.simulated.*figure.figure},
                                    {"real", median_of_reals(load, figure)},
                                    {"error", error_of(load, figure)},
                                    {"spread", nullptr}};
            if (fidelity.config.rounds > 1) figures[figure.name]["spread"] = spread_of(load, figure);
        }
        loads.push_back({{"load", load.load},
                         {"requests_per_s", load.rate},
                         {"requests", load.num_requests},
                         {"figures", figures}});
    }
    return {{"trace", fidelity.config.trace},
            {"model", fidelity.config.model},
            {"executor", fidelity.config.executor},
            {"time", fidelity.config.time == TimeSource::kWork ? "work" : "wall"},
            {"rounds", fidelity.config.rounds},
            {"capacity_requests_per_s", fidelity.capacity},
            {"loads", loads}};
}

std::string fidelity_table(const Fidelity& fidelity) {
    Table table({"load", "figure", "simulated", "real", "error", "spread"});
    for (const LoadFidelity& load : fidelity.loads) {
        for (const FigureName& figure : figure_names()) {
            const bool is_rate = figure.figure == &RunFigures::tokens_per_s;
            const double unit = is_rate ? 1 : 1e3;
            const auto value = [&](double x) { return fmt::format("{:.3f}{}", x * unit, is_rate ? "" : " ms"); };
            table.add_row({name_of(load), figure.name, value(load.simulated.*figure.figure),
                           value(median_of_reals(load, figure)), percent(error_of(load, figure)),
                           fidelity.config.rounds > 1 ? percent(spread_of(load, figure)) : "-"});
        }
    }
    return fmt::format("{}: {} on {}, {} requests, capacity {:.1f}/s, {} real runs\n\n{}", fidelity.config.trace,
                       fidelity.config.model, fidelity.config.executor, fidelity.loads.front().num_requests,
                       fidelity.capacity, fidelity.config.rounds, table.to_string());
}

}  // namespace verbatim::tools
