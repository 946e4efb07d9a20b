#include "simulator/run_figures.h"

#include <algorithm>

#include "engine/cache/cache.h"

namespace verbatim {
namespace {

constexpr double kNsPerSec = 1e9;

double tokens_per_second(const SimulationResult& result) {
    const double seconds = static_cast<double>(result.driver.virtual_ns) / kNsPerSec;
    return seconds > 0 ? static_cast<double>(served_tokens(result)) / seconds : 0;
}

Bounds bounds_of(std::array<double, 3> values) {
    const auto [low, high] = std::ranges::minmax(values);
    return {low, high};
}

}  // namespace

std::span<const RowTimes> steady_rows(const SimulateRun& run) {
    const auto& rows = run.result.driver.times;
    return std::span(rows).subspan(rows.size() / 2);
}

int64_t served_tokens(const SimulationResult& result) {
    int64_t tokens = 0;
    for (const RowTimes& row : result.driver.times) tokens += is_answered(row) ? row.output_tokens : 0;
    return tokens;
}

double duration_s(const SimulateRun& run) { return static_cast<double>(run.result.driver.virtual_ns) / kNsPerSec; }

double per_second(const SimulateRun& run, int64_t count) {
    return duration_s(run) > 0 ? static_cast<double>(count) / duration_s(run) : 0;
}

double read_ms(int64_t bytes, const Device& device) {
    constexpr double kMilliseconds = 1e3;
    return static_cast<double>(bytes) / (device.memory_bytes_per_s * device.memory_efficiency) * kMilliseconds;
}

bool knows_reusable(const SimulateRun& run) { return learns(engine_config(run.config, run.model, run.memory).cache); }

BoundedFigures::BoundedFigures(const SimulateRun& run, const Slo& slo)
    : results_{&run.bounds->fast, &run.result, &run.bounds->slow} {
    for (size_t i = 0; i < results_.size(); ++i)
        metrics_[i] = metrics_of(results_[i]->driver.times, run.memory.pools.block_size, slo);
}

Bounds BoundedFigures::of(Distribution Metrics::*times, double Distribution::*value) const {
    return bounds_of({metrics_[0].*times.*value, metrics_[1].*times.*value, metrics_[2].*times.*value});
}

Bounds BoundedFigures::throughput() const {
    return bounds_of(
        {tokens_per_second(*results_[0]), tokens_per_second(*results_[1]), tokens_per_second(*results_[2])});
}

}  // namespace verbatim
