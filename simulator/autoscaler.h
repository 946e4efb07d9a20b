// simulator/autoscaler.h: owns the rule by which replicas come and go: the one of Kubernetes' HorizontalPodAutoscaler
// for an average per replica (kubernetes.io, Horizontal Pod Autoscaling, algorithm details).
//
// At every interval: wanted = ceil(sum of the metric over replicas / target), within the bounds; nothing changes where
// sum / (replicas · target) is within a tenth of 1. Fewer replicas are wanted only when they were wanted during the
// whole cool-down: the largest number of it counts (the scale-down stabilisation window).
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/result.h"

namespace verbatim {

enum class ScaleMetric : uint8_t {
    kRequests,  // sent to the replica, and not over
    kWaiting,   // of these, without their first token
    kBusy,      // the share of the last interval in which it computed
};

struct AutoscaleConfig {
    int32_t least = 1;
    int32_t most = 1;
    ScaleMetric metric = ScaleMetric::kRequests;
    double target = 1;                      // of each replica
    int64_t startup_ns = 60'000'000'000;    // from the decision until a replica takes requests
    int64_t cooldown_ns = 300'000'000'000;  // Kubernetes' default
    int64_t interval_ns = 15'000'000'000;   // likewise
    friend bool operator==(const AutoscaleConfig&, const AutoscaleConfig&) = default;
};
// "1..8": the bounds.
[[nodiscard]] Result<std::pair<int32_t, int32_t>> parse_scale_range(std::string_view text);
// "requests=32", "waiting=4", "busy=0.8".
[[nodiscard]] Result<std::pair<ScaleMetric, double>> parse_scale_target(std::string_view text);

class Autoscaler {
public:
    explicit Autoscaler(const AutoscaleConfig& config) : config_(config) {}
    // How many replicas are wanted, of `num_replicas` that run or start, whose metric sums to `sum`. REQUIRES: times
    // ascend.
    [[nodiscard]] int32_t wanted(int64_t now_ns, int32_t num_replicas, double sum);

private:
    AutoscaleConfig config_;
    std::deque<std::pair<int64_t, int32_t>> wanted_before_;  // time and number, within the cool-down
};

}  // namespace verbatim
