#include "simulator/autoscaler.h"

#include <algorithm>
#include <cmath>

#include "engine/base/check.h"
#include "traces/strict.h"

namespace verbatim {
namespace {

constexpr double kTolerance = 0.1;  // Kubernetes' default
constexpr int32_t kMostReplicas = 1024;

}  // namespace

int32_t Autoscaler::wanted(int64_t now_ns, int32_t num_replicas, double sum) {
    CHECK(num_replicas > 0 && config_.target > 0);
    const double ratio = sum / (config_.target * num_replicas);
    const double exact = std::abs(ratio - 1) <= kTolerance ? num_replicas : std::ceil(sum / config_.target);
    const auto number =
        static_cast<int32_t>(std::clamp(exact, static_cast<double>(config_.least), static_cast<double>(config_.most)));
    CHECK(wanted_before_.empty() || wanted_before_.back().first <= now_ns);
    wanted_before_.emplace_back(now_ns, number);
    while (wanted_before_.front().first < now_ns - config_.cooldown_ns) wanted_before_.pop_front();
    if (number >= num_replicas) return number;
    int32_t most = number;
    for (const auto& [time_ns, before] : wanted_before_) most = std::max(most, before);
    return std::min(most, num_replicas);
}

Result<std::pair<int32_t, int32_t>> parse_scale_range(std::string_view text) {
    const size_t dots = text.find("..");
    if (dots != std::string_view::npos) {
        const auto least = traces::parse_number<int32_t>(text.substr(0, dots));
        const auto most = traces::parse_number<int32_t>(text.substr(dots + 2));
        if (least && most && *least >= 1 && *least <= *most && *most <= kMostReplicas) return std::pair(*least, *most);
    }
    return error("--autoscale: got {}, wanted MIN..MAX with 1 <= MIN <= MAX <= {}", traces::shown(text), kMostReplicas);
}

Result<std::pair<ScaleMetric, double>> parse_scale_target(std::string_view text) {
    const size_t equals = std::min(text.find('='), text.size());
    const auto target = equals == text.size() ? std::nullopt : traces::parse_number<double>(text.substr(equals + 1));
    for (const auto& [name, metric] :
         {std::pair{"requests", ScaleMetric::kRequests}, std::pair{"waiting", ScaleMetric::kWaiting},
          std::pair{"busy", ScaleMetric::kBusy}}) {
        const double most = metric == ScaleMetric::kBusy ? 1 : 1e6;
        if (text.substr(0, equals) == name && target && *target > 0 && *target <= most)
            return std::pair(metric, *target);
    }
    return error("--scale-on: got {}, wanted requests=N, waiting=N or busy=SHARE, above 0 and of a replica",
                 traces::shown(text));
}

}  // namespace verbatim
