// traces/chance.h: owns draws from one random stream, for generated traces.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "engine/base/prng.h"
#include "traces/generate.h"

namespace verbatim::traces {

class Chance {
public:
    explicit Chance(uint64_t seed) : prng_(seed) {}
    double uniform() { return static_cast<double>(prng_.next() >> 11) * 0x1p-53; }  // [0, 1)
    bool happens(double probability) { return uniform() < probability; }
    double exponential(double mean) { return -mean * std::log1p(-uniform()); }
    // Box and Muller (1958).
    double normal() {
        const double radius = std::sqrt(-2 * std::log1p(-uniform()));
        return radius * std::cos(2 * std::numbers::pi * uniform());
    }
    int64_t below(int64_t bound) { return static_cast<int64_t>(uniform() * static_cast<double>(bound)); }
    int64_t length(const LengthDistribution& of) {
        constexpr double kLongest = 1 << 20;
        return std::llround(std::clamp(of.median * std::exp(of.sigma * normal()), 1.0, kLongest));
    }
    // 1, 2, ... with this mean.
    int64_t geometric(double mean) {
        if (mean <= 1) return 1;
        return 1 + static_cast<int64_t>(std::min(1e6, std::log1p(-uniform()) / std::log1p(-1 / mean)));
    }

private:
    Prng prng_;
};

}  // namespace verbatim::traces
