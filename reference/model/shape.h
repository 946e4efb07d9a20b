// reference/model/shape.h: the number of elements of a tensor's shape.
#pragma once

#include <cstdint>
#include <span>

namespace verbatim::reference {

// 1 of a shape without extents. REQUIRES: the product fits.
inline int64_t num_elements_of(std::span<const int64_t> shape) {
    int64_t product = 1;
    for (const int64_t extent : shape) product *= extent;
    return product;
}

}  // namespace verbatim::reference
