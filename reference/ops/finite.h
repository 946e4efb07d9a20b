// reference/ops/finite.h: N8's question. A NaN or infinity in logits or state ends its own request and nobody else's.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace verbatim::reference {

// The index of the first element that is a NaN or an infinity.
std::optional<int64_t> first_not_finite(std::span<const float> values);

}  // namespace verbatim::reference
