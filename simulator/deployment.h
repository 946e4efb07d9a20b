// simulator/deployment.h: owns what a deployment changes of a model's shape: the number format of its states.
#pragma once

#include <cstdint>

#include "simulator/model_shape.h"

namespace verbatim {

// Recurrent states of `value_bytes` (4 or 2) per element: bytes per row, and bytes that every step reads and writes.
[[nodiscard]] ModelShape with_state_values(ModelShape model, int64_t value_bytes);

}  // namespace verbatim
