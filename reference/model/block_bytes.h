// reference/model/block_bytes.h: the numbers in the bytes of a block of weights (reference/model/quantised_blocks.h).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "reference/numerics/half.h"

namespace verbatim::reference {

static_assert(std::endian::native == std::endian::little, "blocks are read as they lie");

inline uint8_t byte_at(const std::byte* block, int64_t i) { return std::to_integer<uint8_t>(block[i]); }
inline int8_t signed_at(const std::byte* block, int64_t i) { return static_cast<int8_t>(byte_at(block, i)); }

template <typename T>
T value_at(const std::byte* block, int64_t offset) {
    T value;
    std::memcpy(&value, block + offset, sizeof(T));
    return value;
}

inline float half_at(const std::byte* block, int64_t offset) {
    return std::bit_cast<float>(widen_half(value_at<uint16_t>(block, offset)));
}

struct ScaleAndMin {
    float scale = 0;
    float min = 0;
};

// Of run j of 8 of a block of Q4_K or Q5_K: d [2], dmin [2], scales [12], where each run has six bits of a scale and
// six of a minimum. Each is one product, rounded once.
inline ScaleAndMin scale_and_min(const std::byte* block, int64_t j) {
    const std::byte* scales = block + 4;
    const uint8_t low = byte_at(scales, j < 4 ? j : j + 4);
    const int32_t scale = j < 4 ? low & 63 : (low & 15) | byte_at(scales, j - 4) >> 6 << 4;
    const int32_t min = j < 4 ? byte_at(scales, j + 4) & 63 : low >> 4 | byte_at(scales, j) >> 6 << 4;
    return {half_at(block, 0) * static_cast<float>(scale), half_at(block, 2) * static_cast<float>(min)};
}

}  // namespace verbatim::reference
