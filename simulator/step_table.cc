#include "simulator/step_table.h"

#include <algorithm>
#include <cmath>

#include "engine/base/check.h"

namespace verbatim {
namespace {

constexpr int kReweightings = 12;
constexpr int kSweeps = 400;
constexpr double kSmallError = 0.02;  // smaller errors have the weight of their square

enum Part : size_t { kSequence, kChunkPair, kDecodePair, kLogitRow, kStateWrite, kNumParts };

double chunk_pairs(const StepWork& work) {
    double pairs = real(work.window_pairs);
    for (const Chunk& chunk : work.chunks) pairs += chunk.pairs_with_past() + chunk.pairs_among_new();
    return pairs;
}

// The coefficients of each grid point, then of each other part.
std::vector<double> features_of(const std::vector<double>& grid, const StepWork& work) {
    std::vector<double> features(grid.size() + kNumParts);
    const double tokens = real(work.num_tokens);
    if (grid.size() == 1) {
        features[0] = 1;
    } else {
        const auto above = std::ranges::upper_bound(grid, tokens) - grid.begin();
        const auto high = static_cast<size_t>(std::clamp<std::ptrdiff_t>(above, 1, std::ssize(grid) - 1));
        const double share = (tokens - grid[high - 1]) / (grid[high] - grid[high - 1]);
        features[high - 1] = 1 - share;
        features[high] = share;
    }
    double* parts = features.data() + grid.size();
    parts[kSequence] = real(work.num_sequences());
    parts[kChunkPair] = chunk_pairs(work);
    parts[kDecodePair] = real(work.decode_context);
    parts[kLogitRow] = real(work.num_logit_rows);
    parts[kStateWrite] = real(work.num_state_writes);
    return features;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

// Least squares of sum(weight (x · row - 1)^2) over x >= 0, by coordinate descent.
void solve(const std::vector<std::vector<double>>& rows, const std::vector<double>& weights, std::vector<double>& x) {
    const size_t n = x.size();
    std::vector<std::vector<double>> gram(n, std::vector<double>(n));
    std::vector<double> right(n);
    for (size_t row = 0; row < rows.size(); ++row) {
        for (size_t i = 0; i < n; ++i) {
            if (rows[row][i] == 0) continue;
            right[i] += weights[row] * rows[row][i];
            for (size_t j = 0; j < n; ++j) gram[i][j] += weights[row] * rows[row][i] * rows[row][j];
        }
    }
    for (int sweep = 0; sweep < kSweeps; ++sweep) {
        for (size_t i = 0; i < n; ++i) {
            if (gram[i][i] > 0) x[i] = std::max(0.0, x[i] + (right[i] - dot(gram[i], x)) / gram[i][i]);
        }
    }
}

double quantile_of(const std::vector<double>& sorted, double share) {
    const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(sorted.size())));
    return sorted[std::max<size_t>(rank, 1) - 1];
}

}  // namespace

std::vector<double> step_grid(int64_t max_tokens) {
    std::vector<double> grid = {1};
    for (int64_t power = 2; power < max_tokens; power *= 2) {
        grid.push_back(real(power));
        if (power * 3 / 2 < max_tokens) grid.push_back(real(power * 3 / 2));
    }
    if (max_tokens > 1) grid.push_back(real(max_tokens));
    return grid;
}

double step_ns(const StepTimes& times, const StepWork& work) {
    const std::vector<double> features = features_of(times.tokens, work);
    std::vector<double> x = times.base_ns;
    x.insert(x.end(),
             {times.sequence_ns, times.chunk_pair_ns, times.decode_pair_ns, times.logit_row_ns, times.state_write_ns});
    return std::max(1.0, dot(features, x));
}

StepTimes fit_step_times(std::string model, std::span<const TimedStep> steps) {
    CHECK(!steps.empty());
    int64_t max_tokens = 1;
    for (const TimedStep& step : steps) max_tokens = std::max(max_tokens, step.work.num_tokens);
    StepTimes times{.model = std::move(model), .tokens = step_grid(max_tokens)};
    const size_t num_points = times.tokens.size();
    // Scales columns by their largest entry, rows by their time.
    std::vector<std::vector<double>> rows;
    std::vector<double> scale(num_points + kNumParts);
    for (const TimedStep& step : steps) {
        CHECK(step.ns > 0 && step.work.num_tokens > 0, "a step of {} tokens took {} ns", step.work.num_tokens, step.ns);
        rows.push_back(features_of(times.tokens, step.work));
        for (double& value : rows.back()) value /= step.ns;
        for (size_t i = 0; i < scale.size(); ++i) scale[i] = std::max(scale[i], rows.back()[i]);
    }
    for (std::vector<double>& row : rows) {
        for (size_t i = 0; i < scale.size(); ++i) row[i] = scale[i] > 0 ? row[i] / scale[i] : 0;
    }
    std::vector<double> x(scale.size());
    std::vector<double> weights(rows.size(), 1);
    for (int round = 0; round < kReweightings; ++round) {
        solve(rows, weights, x);
        for (size_t i = 0; i < rows.size(); ++i) weights[i] = 1 / std::max(kSmallError, std::abs(dot(rows[i], x) - 1));
    }
    for (size_t i = 0; i < x.size(); ++i) x[i] = scale[i] > 0 ? x[i] / scale[i] : 0;
    times.base_ns.assign(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(num_points));
    times.sequence_ns = x[num_points + kSequence];
    times.chunk_pair_ns = x[num_points + kChunkPair];
    times.decode_pair_ns = x[num_points + kDecodePair];
    times.logit_row_ns = x[num_points + kLogitRow];
    times.state_write_ns = x[num_points + kStateWrite];
    return times;
}

StepErrors errors_of(const StepTimes& times, std::span<const TimedStep> steps) {
    StepErrors result;
    std::vector<double> errors;
    double estimated = 0;
    double measured = 0;
    for (const TimedStep& step : steps) {
        const double ns = step_ns(times, step.work);
        errors.push_back(std::abs(ns / step.ns - 1));
        result.mean += errors.back();
        estimated += ns;
        measured += step.ns;
    }
    if (errors.empty()) return result;
    result.num_steps = std::ssize(errors);
    result.mean /= static_cast<double>(errors.size());
    std::ranges::sort(errors);
    result.p50 = quantile_of(errors, 0.5);
    result.p95 = quantile_of(errors, 0.95);
    result.of_sum = estimated / measured - 1;
    return result;
}

double ExpertReads::extra_ns(const StepWork& work) {
    double bytes = 0;
    layers_.visit(work.step, work.num_tokens, [&](const ExpertsShape& shape, int64_t distinct) {
        const double expected = expected_distinct(shape.n_experts, shape.n_chosen, work.num_tokens);
        bytes += (real(distinct) - expected) * real(shape.parameters()) * kBf16Bytes;
    });
    return bytes / bytes_per_ns_;
}

Price StepTableCost::price(const StepWork& work) {
    Price price;
    if (work.num_tokens == 0) return price;
    const bool inside = real(work.num_tokens) <= times_.tokens.back();
    const double ns = std::max(1.0, step_ns(times_, work) + experts_.extra_ns(work));
    price.add({ns, inside ? PriceSource::kInterpolated : PriceSource::kExtrapolated});
    return price;
}

}  // namespace verbatim
