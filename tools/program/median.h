// tools/program/median.h: the middle of what was measured.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/base/check.h"

namespace verbatim::tools {

// Of an even number of values the mean of the two in the middle. REQUIRES: not empty.
inline double median(std::vector<double> values) {
    CHECK(!values.empty());
    std::ranges::sort(values);
    const size_t middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace verbatim::tools
