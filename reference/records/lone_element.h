// reference/records/lone_element.h: the single element in which two rows differ, from one row and the other's sum.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/base/digest.h"
#include "reference/numerics/element_sum.h"

namespace verbatim::records {

struct LoneElement {
    int64_t element = 0;  // of the row
    float value = 0;
};

// The element whose change turns the sum `all` into `wanted`, and its value then. `row` is the part of the summed array
// from element `place` on. Empty: no single element of the row does.
[[nodiscard]] std::optional<LoneElement> lone_element(std::span<const float> row, int64_t place, const Digest& wanted,
                                                      const reference::ElementSum& all);

}  // namespace verbatim::records
