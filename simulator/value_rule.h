// simulator/value_rule.h: owns the inputs of eviction by value, from a model's shape.
#pragma once

#include "engine/cache/cache.h"
#include "simulator/model_shape.h"

namespace verbatim {

// The operations of the model's shape, and the size of the history of prompts' prefixes.
void set_value_rule(CacheConfig& cache, const ModelShape& model);

}  // namespace verbatim
