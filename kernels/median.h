// kernels/median.h: the median of measurements.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "engine/base/check.h"

namespace verbatim {

// For an even number of values the mean of the middle two. REQUIRES: not empty.
inline double median(std::vector<double> values) {
    CHECK(!values.empty());
    std::ranges::sort(values);
    const size_t middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Whether the median is known to 1 % with a confidence of 19 in 20: the order statistics sqrt(n) · 0.98 places around
// the middle are within 1 %.
inline bool median_is_known(std::vector<double> times) {
    if (times.size() < 32) return false;
    std::ranges::sort(times);
    const auto half = static_cast<size_t>(0.98 * std::sqrt(static_cast<double>(times.size())));
    const size_t middle = times.size() / 2;
    return times[middle + half] - times[middle - half] <= 0.02 * times[middle];
}

}  // namespace verbatim
