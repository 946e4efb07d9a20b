// reference/numerics/int8_sharing.h: which elements of a row of activations share a scale in exact.int8
// (reference/ops/int8_matmul.h).
#pragma once

#include <cstdint>

#include "reference/numerics/constants.h"

namespace verbatim::reference {

enum class Int8Sharing : uint8_t { kBlocksOf32, kBlocksOf256, kRow };
// The columns of each scale that is stored: a row's is stored as often as those of blocks of 32 are.
constexpr int64_t scale_columns(Int8Sharing sharing) {
    return sharing == Int8Sharing::kBlocksOf256 ? kLargeInt8Block : kSmallInt8Block;
}

}  // namespace verbatim::reference
