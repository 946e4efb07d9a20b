// simulator/run_figures.h: owns the figures of a simulated run that its table and its JSON have in common.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "simulator/metrics.h"
#include "simulator/run.h"
#include "simulator/simulation.h"

namespace verbatim {

// The second half of the trace's rows.
[[nodiscard]] std::span<const RowTimes> steady_rows(const SimulateRun& run);
// Of answered requests.
[[nodiscard]] int64_t served_tokens(const SimulationResult& result);
[[nodiscard]] double duration_s(const SimulateRun& run);
// 0 for a run that took no time.
[[nodiscard]] double per_second(const SimulateRun& run, int64_t count);
// How long the device's memory takes to read so many bytes of weights, in milliseconds.
[[nodiscard]] double read_ms(int64_t bytes, const Device& device);
// Whether the cache counted what an unlimited one would have reused.
[[nodiscard]] bool knows_reusable(const SimulateRun& run);

// A figure of the runs with the fastest rooflines, the device's own and the slowest ones. Faster kernels do not make
// every figure better: the queue is another.
struct Bounds {
    double low = 0;
    double high = 0;
};

// Figures of the three runs. REQUIRES: the run has bounds.
class BoundedFigures {
public:
    BoundedFigures(const SimulateRun& run, const Slo& slo);
    [[nodiscard]] Bounds of(Distribution Metrics::*times, double Distribution::*value) const;
    [[nodiscard]] Bounds throughput() const;  // tokens per second

private:
    std::array<const SimulationResult*, 3> results_;
    std::array<Metrics, 3> metrics_;
};

inline constexpr std::array kDistributionValues = {
    std::pair{"mean", &Distribution::mean}, std::pair{"p50", &Distribution::p50}, std::pair{"p95", &Distribution::p95},
    std::pair{"p99", &Distribution::p99}};

}  // namespace verbatim
