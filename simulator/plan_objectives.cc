#include "simulator/plan_objectives.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "engine/base/check.h"
#include "simulator/metrics.h"
#include "traces/strict.h"

namespace verbatim {
namespace {

constexpr std::pair<const char*, Latency> kLatencies[] = {
    {"ttft", Latency::kTtft}, {"tpot", Latency::kTpot}, {"e2e", Latency::kE2e}};

std::optional<int64_t> latency_ns(Latency latency, const RowTimes& row) {
    switch (latency) {
        case Latency::kTtft: return ttft_ns(row);
        case Latency::kTpot: return tpot_ns(row);
        case Latency::kE2e: return is_answered(row) ? std::optional(row.end_ns - row.due_ns) : std::nullopt;
    }
    return std::nullopt;
}

// "p99", "p99.9", "mean".
std::optional<double> parse_percentile(std::string_view text) {
    if (text == "mean") return 0;
    if (!text.starts_with('p')) return std::nullopt;
    const auto percentile = traces::parse_number<double>(text.substr(1));
    return percentile && *percentile > 0 && *percentile <= 100 ? percentile : std::nullopt;
}

std::optional<Objective> parse_objective(std::string_view text) {
    const size_t colon = text.find(':');
    const size_t equals = text.find('=');
    if (colon == std::string_view::npos || equals == std::string_view::npos || equals < colon) return std::nullopt;
    const auto percentile = parse_percentile(text.substr(0, colon));
    const auto limit = parse_time_ns(text.substr(equals + 1));
    const std::string_view what = text.substr(colon + 1, equals - colon - 1);
    const auto* latency = std::ranges::find(kLatencies, what, [](const auto& known) { return known.first; });
    if (!percentile || !limit || latency == std::end(kLatencies)) return std::nullopt;
    return Objective{latency->second, *percentile, *limit};
}

}  // namespace

const char* name(Latency latency) {
    const auto* known = std::ranges::find(kLatencies, latency, &std::pair<const char*, Latency>::second);
    CHECK(known != std::end(kLatencies), "latency {}", static_cast<int>(latency));
    return known->first;
}

std::string name(const Objective& objective) {
    return objective.percentile == 0 ? fmt::format("mean:{}", name(objective.latency))
                                     : fmt::format("p{}:{}", objective.percentile, name(objective.latency));
}

Result<std::vector<Objective>> parse_objectives(std::string_view text) {
    constexpr const char* kWanted =
        "objectives such as p99:ttft=2s,p99:tpot=50ms: pN (0 < N <= 100) or mean, of ttft, tpot or e2e, in s, ms or us";
    std::vector<Objective> objectives;
    for (std::string_view rest = text; !rest.empty();) {
        const std::string_view part = rest.substr(0, rest.find(','));
        rest.remove_prefix(std::min(rest.size(), part.size() + 1));
        const auto objective = parse_objective(part);
        if (!objective) return error("--slo: got {}, wanted {}", traces::shown(part), kWanted);
        for (const Objective& other : objectives) {
            if (name(other) == name(*objective)) return error("--slo: {} is there twice", name(*objective));
        }
        objectives.push_back(*objective);
    }
    if (objectives.empty()) return error("--slo: got nothing, wanted {}", kWanted);
    return objectives;
}

Slo slo_of(const std::vector<Objective>& objectives) {
    Slo slo;
    for (const Objective& objective : objectives) {
        std::optional<int64_t>& limit_ns = objective.latency == Latency::kTtft   ? slo.ttft_ns
                                           : objective.latency == Latency::kTpot ? slo.tpot_ns
                                                                                 : slo.e2e_ns;
        limit_ns = std::max(limit_ns.value_or(0), objective.limit_ns);
    }
    return slo;
}

Measured measure(const Objective& objective, std::span<const RowTimes> rows) {
    std::vector<std::pair<int64_t, size_t>> values;
    double sum = 0;
    for (size_t row = 0; row < rows.size(); ++row) {
        const auto value = latency_ns(objective.latency, rows[row]);
        if (value) values.emplace_back(*value, row);
        sum += static_cast<double>(value.value_or(0));
    }
    if (values.empty()) return {};
    const auto count = static_cast<double>(values.size());
    const double share = objective.percentile == 0 ? 1 : objective.percentile / 100;
    const auto rank = static_cast<size_t>(std::ceil(share * count - 1e-9));
    const auto place = values.begin() + static_cast<std::ptrdiff_t>(std::max<size_t>(rank, 1) - 1);
    std::ranges::nth_element(values, place);
    const int64_t value_ns = objective.percentile == 0 ? std::llround(sum / count) : place->first;
    const RowTimes& at = rows[place->second];
    return {true, value_ns, place->second, at.prompt_tokens, at.reused_tokens};
}

}  // namespace verbatim
