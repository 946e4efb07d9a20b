#include "simulator/plan_search.h"

#include <algorithm>
#include <cmath>

#include "engine/base/check.h"

namespace verbatim {

Result<std::optional<int64_t>> fewest(int64_t least, int64_t most, const std::function<Result<bool>(int64_t)>& keeps) {
    CHECK(1 <= least && least <= most, "counts from {} to {}", least, most);
    int64_t not_enough = least - 1;
    int64_t enough = least;
    while (true) {
        ASSIGN_OR_RETURN(const bool kept, keeps(enough));
        if (kept) break;
        if (enough == most) return std::nullopt;
        not_enough = enough;
        enough = std::min(2 * enough, most);
    }
    while (enough - not_enough > 1) {
        const int64_t middle = not_enough + (enough - not_enough) / 2;
        ASSIGN_OR_RETURN(const bool kept, keeps(middle));
        (kept ? enough : not_enough) = middle;
    }
    return enough;
}

Result<std::optional<double>> highest(double low, double high, const std::function<Result<bool>(double)>& keeps) {
    CHECK(low > 0 && low <= high, "rates from {} to {}", low, high);
    ASSIGN_OR_RETURN(const bool low_kept, keeps(low));
    if (!low_kept) return std::nullopt;
    if (low == high) return low;
    ASSIGN_OR_RETURN(const bool high_kept, keeps(high));
    if (high_kept) return high;
    while (high / low > kRateStep) {
        const double middle = std::sqrt(low * high);
        ASSIGN_OR_RETURN(const bool kept, keeps(middle));
        (kept ? low : high) = middle;
    }
    return low;
}

}  // namespace verbatim
