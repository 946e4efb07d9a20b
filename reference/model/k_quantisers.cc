#include "reference/model/k_quantisers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>

#include "reference/model/block_bytes.h"

namespace verbatim::reference {
namespace {

constexpr int32_t kBlock = 256;

// Four runs of a block at a time, one in each lane: the sums of a run keep their order, and four of them cost as one.
constexpr int32_t kLanes = 4;
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));

Lanes broadcast(float value) { return Lanes{} + value; }

// To the nearest integer, ties to even, by the sum's own rounding: of magnitudes below 2^22. NaN becomes `least`.
Lanes nearest(Lanes value, float least, float greatest) {
    constexpr float kUnitsAlone = 12582912.0F;  // 1.5 * 2^23, whose neighbours are 1 apart
    value = value > least ? value : broadcast(least);
    value = value < greatest ? value : broadcast(greatest);
    return (value + kUnitsAlone) - kUnitsAlone;
}

int32_t nearest(float value, int32_t least, int32_t greatest) {
    return static_cast<int32_t>(nearest(broadcast(value), static_cast<float>(least), static_cast<float>(greatest))[0]);
}

// Runs of `Size` values that lie one behind the other: the i-th value of each in one element.
template <int32_t Size>
std::array<Lanes, Size> side_by_side(const float* runs) {
    std::array<Lanes, Size> x;
    for (int32_t i = 0; i < Size; ++i)
        for (int32_t lane = 0; lane < kLanes; ++lane) x[i][lane] = runs[lane * Size + i];
    return x;
}

// --- Q4_K: scale · q − min, q of 0 ... 15

constexpr int32_t kRun = 32;
constexpr int32_t kMost = 15;  // of q
using OfRun = std::array<Lanes, kRun>;

struct Line {
    Lanes scale{};
    Lanes min{};  // of the values: 0 or less
};

// The values of four runs, and how much each error counts: the root mean square plus the magnitude.
struct WeightedRuns {
    OfRun x;
    OfRun weight;
    Lanes sum_weight{};
    Lanes sum_x{};
};

WeightedRuns weighted(const float* values) {
    WeightedRuns runs;
    runs.x = side_by_side<kRun>(values);
    Lanes squares{};
    for (const Lanes& x : runs.x) squares += x * x;
    Lanes mean;
    for (int32_t lane = 0; lane < kLanes; ++lane) mean[lane] = std::sqrt(squares[lane] / kRun);
    for (int32_t i = 0; i < kRun; ++i) {
        runs.weight[i] = mean + (runs.x[i] < 0 ? -runs.x[i] : runs.x[i]);
        runs.sum_weight += runs.weight[i];
        runs.sum_x += runs.weight[i] * runs.x[i];
    }
    return runs;
}

OfRun quants_at(const WeightedRuns& runs, Lanes inverse, Lanes min) {
    OfRun quants;
    for (int32_t i = 0; i < kRun; ++i) quants[i] = nearest(inverse * (runs.x[i] - min), 0, kMost);
    return quants;
}

Lanes error_of(const WeightedRuns& runs, const Line& line, const OfRun& quants) {
    Lanes error{};
    for (int32_t i = 0; i < kRun; ++i) {
        const Lanes off = line.scale * quants[i] + line.min - runs.x[i];
        error += runs.weight[i] * (off * off);
    }
    return error;
}

// Of each run the line of least error for these quants, by the normal equations, its minimum at most 0. It has a
// meaning where the determinant, which is returned, is above 0.
Lanes fit(const WeightedRuns& runs, const OfRun& quants, Line& line) {
    Lanes sum_q{};
    Lanes sum_qq{};
    Lanes sum_qx{};
    for (int32_t i = 0; i < kRun; ++i) {
        const Lanes weighted_q = runs.weight[i] * quants[i];
        sum_q += weighted_q;
        sum_qq += weighted_q * quants[i];
        sum_qx += weighted_q * runs.x[i];
    }
    const Lanes determinant = runs.sum_weight * sum_qq - sum_q * sum_q;
    line.scale = (runs.sum_weight * sum_qx - runs.sum_x * sum_q) / determinant;
    line.min = (sum_qq * runs.sum_x - sum_q * sum_qx) / determinant;
    const auto above = line.min > 0;
    line.scale = above ? sum_qx / sum_qq : line.scale;
    line.min = above ? Lanes{} : line.min;
    return determinant;
}

// Quants are made with 21 scales, from 14 to 16 parts of the range; each gives a line. The range begins at the minimum
// of the best line so far.
Line best_line(const WeightedRuns& runs) {
    Lanes min{};
    Lanes greatest = runs.x[0];
    for (const Lanes& x : runs.x) {
        min = x < min ? x : min;
        greatest = x > greatest ? x : greatest;
    }
    const Lanes inverse = kMost / (greatest - min);
    Line best{1.0F / inverse, min};
    Lanes least_error = error_of(runs, best, quants_at(runs, inverse, min));
    for (int32_t step = 0; step <= 20; ++step) {
        const float parts = (-1.0F + 0.1F * static_cast<float>(step)) + kMost;
        const OfRun quants = quants_at(runs, parts / (greatest - best.min), best.min);
        Line line;
        const Lanes determinant = fit(runs, quants, line);
        const Lanes error = error_of(runs, line, quants);
        const auto better = (determinant > 0) & (error < least_error);
        least_error = better ? error : least_error;
        best.scale = better ? line.scale : best.scale;
        best.min = better ? line.min : best.min;
    }
    const auto equal = greatest == min;  // a run of one value, which is 0 or less
    return {equal ? Lanes{} : best.scale, equal ? min : best.min};
}

// Six bits of each: the first four of a kind in the low bits of a byte, of the last four the upper two bits above them.
void put_scale_and_min(std::byte* scales, int32_t j, int32_t scale, int32_t min) {
    if (j < 4) {
        scales[j] |= static_cast<std::byte>(scale);
        scales[j + 4] |= static_cast<std::byte>(min);
        return;
    }
    scales[j + 4] |= static_cast<std::byte>((scale & 15) | (min & 15) << 4);
    scales[j - 4] |= static_cast<std::byte>(scale >> 4 << 6);
    scales[j] |= static_cast<std::byte>(min >> 4 << 6);
}

// The greatest in 63 parts: of the scales and of the minima of a block.
float parts_of(std::span<const float> values) {
    const float greatest = std::max(0.0F, *std::ranges::max_element(values));
    return greatest > 0 ? 63.0F / greatest : 0.0F;
}

// --- Q6_K: scale · q, q of -32 ... 31

constexpr int32_t kShort = 16;  // of a run
constexpr float kHalf = 32;
constexpr float kNothing = 1e-15F;  // a run whose values are all below it is 0

using OfShortRun = std::array<Lanes, kShort>;

struct Fit {
    Lanes sum_qx{};
    Lanes sum_qq{};
};

// An error counts by the value's square.
Fit fit_at(const OfShortRun& runs, Lanes inverse) {
    Fit fit;
    for (const Lanes& x : runs) {
        const Lanes q = nearest(inverse * x, -kHalf, kHalf - 1);
        const Lanes weight = x * x;
        fit.sum_qx += weight * x * q;
        fit.sum_qq += weight * q * q;
    }
    return fit;
}

// Of four runs: quants are made with 19 scales, by which the value of the greatest magnitude is 31.1 to 32.9.
Lanes best_scales(const OfShortRun& runs) {
    const auto magnitude = [](const Lanes& value) { return value < 0 ? -value : value; };
    Lanes greatest = runs[0];
    for (const Lanes& x : runs) greatest = magnitude(x) > magnitude(greatest) ? x : greatest;
    const Fit first = fit_at(runs, -kHalf / greatest);
    Lanes scale = first.sum_qq != 0 ? first.sum_qx / first.sum_qq : Lanes{};
    Lanes best = scale * first.sum_qx;
    for (int32_t step = -9; step <= 9; ++step) {
        if (step == 0) continue;
        const Fit fit = fit_at(runs, -(kHalf + 0.1F * static_cast<float>(step)) / greatest);
        const auto better = (fit.sum_qq > 0) & (fit.sum_qx * fit.sum_qx > best * fit.sum_qq);
        scale = better ? fit.sum_qx / fit.sum_qq : scale;
        best = better ? scale * fit.sum_qx : best;
    }
    return magnitude(greatest) < kNothing ? Lanes{} : scale;
}

}  // namespace

void quantise_q4_k(const float* values, std::byte* block) {
    std::array<float, kBlock / kRun> scales;
    std::array<float, kBlock / kRun> minima;
    for (int32_t j = 0; j < kBlock / kRun; j += kLanes) {
        const Line line = best_line(weighted(values + j * kRun));
        for (int32_t lane = 0; lane < kLanes; ++lane) {
            scales[j + lane] = line.scale[lane];
            minima[j + lane] = -line.min[lane];
        }
    }
    std::memset(block, 0, 144);
    const float scale_parts = parts_of(scales);
    const float min_parts = parts_of(minima);
    put_half(block, std::max(0.0F, *std::ranges::max_element(scales)) / 63.0F);
    put_half(block + 2, std::max(0.0F, *std::ranges::max_element(minima)) / 63.0F);
    for (int32_t j = 0; j < kBlock / kRun; ++j)
        put_scale_and_min(block + 4, j, nearest(scale_parts * scales[j], 0, 63), nearest(min_parts * minima[j], 0, 63));
    for (int32_t j = 0; j < kBlock / kRun; ++j) {
        const ScaleAndMin stored = scale_and_min(block, j);
        for (int32_t l = 0; l < kRun; ++l) {
            const float x = values[j * kRun + l];
            const int32_t q = stored.scale != 0 ? nearest((x + stored.min) / stored.scale, 0, kMost) : 0;
            block[16 + j / 2 * kRun + l] |= static_cast<std::byte>(q << (j % 2 * 4));
        }
    }
}

void quantise_q6_k(const float* values, std::byte* block) {
    std::array<float, kBlock / kShort> scales;
    for (int32_t run = 0; run < kBlock / kShort; run += kLanes) {
        const Lanes of_runs = best_scales(side_by_side<kShort>(values + run * kShort));
        for (int32_t lane = 0; lane < kLanes; ++lane) scales[run + lane] = of_runs[lane];
    }
    std::memset(block, 0, 210);
    const float greatest =
        *std::ranges::max_element(scales, [](float a, float b) { return std::abs(a) < std::abs(b); });
    if (std::abs(greatest) < kNothing) return;
    const float parts = -128.0F / greatest;
    put_half(block + 208, 1.0F / parts);
    for (int32_t run = 0; run < kBlock / kShort; ++run) {
        const int32_t part = nearest(parts * scales[run], -128, 127);
        block[192 + run] = static_cast<std::byte>(part);
        const float scale = half_at(block, 208) * static_cast<float>(part);
        const int32_t n = run / 8;
        const int32_t j = run % 8 / 2;
        std::byte* low = block + n * 64 + j % 2 * 32 + run % 2 * 16;
        std::byte* high = block + 128 + n * 32 + run % 2 * 16;
        for (int32_t l = 0; l < kShort; ++l) {
            const float x = values[run * kShort + l];
            const int32_t q = 32 + (scale != 0 ? nearest(x / scale, -32, 31) : 0);
            low[l] |= static_cast<std::byte>((q & 15) << (j / 2 * 4));
            high[l] |= static_cast<std::byte>(q >> 4 << (j * 2));
        }
    }
}

}  // namespace verbatim::reference
