// simulator/plan_search.h: bisection over counts and rates, for a question that is answered no, ..., no, yes, ...,
// yes as the count grows, or yes, ..., yes, no, ..., no as the rate grows. A question with other answers gets one of
// its borders: what is found is kept, and the neighbour that was asked is not.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "engine/base/result.h"

namespace verbatim {

// The smallest count from `least` to `most` that keeps: doubles it until one does, then bisects. Empty: not even `most`
// does. Error: the question's. REQUIRES: 1 <= least <= most.
Result<std::optional<int64_t>> fewest(int64_t least, int64_t most, const std::function<Result<bool>(int64_t)>& keeps);

// The highest rate from `low` to `high` that keeps, to within kRateStep: the next higher one that was asked does not.
// Empty: not even `low` does.
inline constexpr double kRateStep = 1.01;
Result<std::optional<double>> highest(double low, double high, const std::function<Result<bool>(double)>& keeps);

}  // namespace verbatim
