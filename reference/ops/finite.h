// reference/ops/finite.h: the check of N8: a NaN or infinity in logits or state ends only the request that has it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace verbatim::reference {

// The index of the first element that is a NaN or an infinity.
std::optional<int64_t> first_not_finite(std::span<const float> values);

}  // namespace verbatim::reference
