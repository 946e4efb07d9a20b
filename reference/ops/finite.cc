#include "reference/ops/finite.h"

#include "reference/numerics/float_bits.h"

namespace verbatim::reference {

std::optional<int64_t> first_not_finite(std::span<const float> values) {
    for (size_t i = 0; i < values.size(); ++i) {
        if (!is_finite(values[i])) return static_cast<int64_t>(i);
    }
    return std::nullopt;
}

}  // namespace verbatim::reference
