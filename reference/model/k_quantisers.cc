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

// To the nearest, ties to even; NaN becomes `least`.
int32_t nearest(float value, int32_t least, int32_t greatest) {
    if (value >= static_cast<float>(greatest)) return greatest;
    return value > static_cast<float>(least) ? static_cast<int32_t>(std::nearbyint(value)) : least;
}

// --- Q4_K: scale · q − min, q of 0 ... 15

constexpr int32_t kRun = 32;
constexpr int32_t kMost = 15;  // of q
using RunOfQ4 = std::array<int32_t, kRun>;

struct Line {
    float scale = 0;
    float min = 0;  // of the values: 0 or less
};

// A run's values, and how much each error counts: the root mean square plus the magnitude.
struct WeightedRun {
    const float* x = nullptr;
    std::array<float, kRun> weight{};
    float sum_weight = 0;
    float sum_x = 0;
};

WeightedRun weighted(const float* x) {
    WeightedRun run{.x = x};
    float squares = 0;
    for (int32_t i = 0; i < kRun; ++i) squares += x[i] * x[i];
    const float mean = std::sqrt(squares / kRun);
    for (int32_t i = 0; i < kRun; ++i) {
        run.weight[i] = mean + std::abs(x[i]);
        run.sum_weight += run.weight[i];
        run.sum_x += run.weight[i] * x[i];
    }
    return run;
}

RunOfQ4 quants_at(const WeightedRun& run, float inverse, float min) {
    RunOfQ4 quants;
    for (int32_t i = 0; i < kRun; ++i) quants[i] = nearest(inverse * (run.x[i] - min), 0, kMost);
    return quants;
}

float error_of(const WeightedRun& run, const Line& line, const RunOfQ4& quants) {
    float error = 0;
    for (int32_t i = 0; i < kRun; ++i) {
        const float off = line.scale * static_cast<float>(quants[i]) + line.min - run.x[i];
        error += run.weight[i] * (off * off);
    }
    return error;
}

// The line of least error for these quants, by the normal equations, its minimum at most 0. False: there is none.
bool fit(const WeightedRun& run, const RunOfQ4& quants, Line& line) {
    float sum_q = 0;
    float sum_qq = 0;
    float sum_qx = 0;
    for (int32_t i = 0; i < kRun; ++i) {
        const auto q = static_cast<float>(quants[i]);
        const float weighted_q = run.weight[i] * q;
        sum_q += weighted_q;
        sum_qq += weighted_q * q;
        sum_qx += weighted_q * run.x[i];
    }
    const float determinant = run.sum_weight * sum_qq - sum_q * sum_q;
    if (!(determinant > 0)) return false;
    line.scale = (run.sum_weight * sum_qx - run.sum_x * sum_q) / determinant;
    line.min = (sum_qq * run.sum_x - sum_q * sum_qx) / determinant;
    if (line.min > 0) line = {sum_qx / sum_qq, 0};
    return true;
}

// Quants are made with 21 scales, from 14 to 16 parts of the range; each gives a line. The range begins at the minimum
// of the best line so far.
Line best_line(const WeightedRun& run) {
    const auto [least, greatest] = std::minmax_element(run.x, run.x + kRun);
    const float min = std::min(*least, 0.0F);
    if (*greatest == min) return {0, min};
    const float inverse = kMost / (*greatest - min);
    Line best{1.0F / inverse, min};
    float least_error = error_of(run, best, quants_at(run, inverse, min));
    for (int32_t step = 0; step <= 20; ++step) {
        const float parts = (-1.0F + 0.1F * static_cast<float>(step)) + kMost;
        const RunOfQ4 quants = quants_at(run, parts / (*greatest - best.min), best.min);
        Line line;
        if (!fit(run, quants, line)) continue;
        const float error = error_of(run, line, quants);
        if (!(error < least_error)) continue;
        least_error = error;
        best = line;
    }
    return best;
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
constexpr int32_t kHalf = 32;
constexpr float kNothing = 1e-15F;  // a run whose values are all below it is 0

struct Fit {
    float sum_qx = 0;
    float sum_qq = 0;
};

// An error counts by the value's square.
Fit fit_at(const float* x, float inverse) {
    Fit fit;
    for (int32_t i = 0; i < kShort; ++i) {
        const auto q = static_cast<float>(nearest(inverse * x[i], -kHalf, kHalf - 1));
        const float weight = x[i] * x[i];
        fit.sum_qx += weight * x[i] * q;
        fit.sum_qq += weight * q * q;
    }
    return fit;
}

// Quants are made with 19 scales, by which the greatest value is 31.1 to 32.9.
float best_scale(const float* x) {
    const float greatest = *std::max_element(x, x + kShort, [](float a, float b) { return std::abs(a) < std::abs(b); });
    if (std::abs(greatest) < kNothing) return 0;
    const Fit first = fit_at(x, -kHalf / greatest);
    float scale = first.sum_qq != 0 ? first.sum_qx / first.sum_qq : 0;
    float best = scale * first.sum_qx;
    for (int32_t step = -9; step <= 9; ++step) {
        if (step == 0) continue;
        const Fit fit = fit_at(x, -(kHalf + 0.1F * static_cast<float>(step)) / greatest);
        if (!(fit.sum_qq > 0 && fit.sum_qx * fit.sum_qx > best * fit.sum_qq)) continue;
        scale = fit.sum_qx / fit.sum_qq;
        best = scale * fit.sum_qx;
    }
    return scale;
}

}  // namespace

void quantise_q4_k(const float* values, std::byte* block) {
    std::array<float, kBlock / kRun> scales;
    std::array<float, kBlock / kRun> minima;
    for (int32_t j = 0; j < kBlock / kRun; ++j) {
        const Line line = best_line(weighted(values + j * kRun));
        scales[j] = line.scale;
        minima[j] = -line.min;
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
    for (int32_t run = 0; run < kBlock / kShort; ++run) scales[run] = best_scale(values + run * kShort);
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
            const int32_t q = kHalf + (scale != 0 ? nearest(x / scale, -kHalf, kHalf - 1) : 0);
            low[l] |= static_cast<std::byte>((q & 15) << (j / 2 * 4));
            high[l] |= static_cast<std::byte>(q >> 4 << (j * 2));
        }
    }
}

}  // namespace verbatim::reference
