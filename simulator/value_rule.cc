#include "simulator/value_rule.h"

#include <cmath>

#include "engine/cache/prefix_history.h"

namespace verbatim {

void set_value_rule(CacheConfig& cache, const ModelShape& model) {
    const ModelFlops flops = flops_of(model);
    cache.operations_per_token = std::llround(flops.per_token);
    cache.operations_per_pair = std::llround(flops.per_pair);
    cache.history_boundaries = kUsualHistoryBoundaries;
}

}  // namespace verbatim
