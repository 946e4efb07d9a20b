#include "reference/loader/gguf_rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/base/check.h"

namespace verbatim::reference {
namespace {

constexpr double kRounding = 1e-5;  // the converter computes in binary32
constexpr int32_t kUsualLength = 8192;

double wavelength(const RopeConfig& rope, size_t i) {
    return 2 * std::numbers::pi * std::pow(rope.theta, 2.0 * static_cast<double>(i) / rope.n_rotary_dims);
}

double divisor(const RopeConfig& rope, size_t i) {
    const double cycles = rope.original_max_position_embeddings / wavelength(rope, i);
    if (cycles > rope.high_freq_factor) return 1.0;
    if (cycles < rope.low_freq_factor) return rope.factor;
    const double blend = (cycles - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
    return 1.0 / ((1.0 - blend) / rope.factor + blend);
}

// The original length with which frequency i has this divisor, which is neither 1 nor the factor.
double length_of(const RopeConfig& rope, size_t i, double divisor) {
    const double blend = (1.0 / divisor - 1.0 / rope.factor) / (1.0 - 1.0 / rope.factor);
    return wavelength(rope, i) * (blend * (rope.high_freq_factor - rope.low_freq_factor) + rope.low_freq_factor);
}

}  // namespace

std::vector<float> rope_divisors(const RopeConfig& rope) {
    CHECK(rope.kind == RopeKind::kLlama3);
    std::vector<float> divisors;
    for (int32_t i = 0; i < rope.n_rotary_dims / 2; ++i)
        divisors.push_back(static_cast<float>(divisor(rope, static_cast<size_t>(i))));
    return divisors;
}

std::optional<RopeConfig> llama3_scaling(std::span<const float> divisors, double theta) {
    if (divisors.empty() || !std::ranges::all_of(divisors, [](float d) { return std::isfinite(d) && d > 0; }))
        return std::nullopt;
    RopeConfig rope{.kind = RopeKind::kLlama3,
                    .n_rotary_dims = static_cast<int32_t>(2 * divisors.size()),
                    .theta = theta,
                    .factor = std::ranges::max(divisors),
                    .original_max_position_embeddings = kUsualLength};
    const auto is_between = [&](float d) { return d > 1 + kRounding && d < rope.factor * (1 - kRounding); };
    const auto blended = std::ranges::find_if(divisors, is_between);
    if (blended != divisors.end()) {
        const double length = length_of(rope, static_cast<size_t>(blended - divisors.begin()), *blended);
        if (!(length >= 1 && length < 1e9)) return std::nullopt;
        rope.original_max_position_embeddings = static_cast<int32_t>(std::lround(length));
    }
    for (size_t i = 0; i < divisors.size(); ++i)
        if (std::abs(divisor(rope, i) / divisors[i] - 1) > kRounding) return std::nullopt;
    return rope;
}

}  // namespace verbatim::reference
