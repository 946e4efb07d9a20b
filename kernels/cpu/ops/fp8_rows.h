// kernels/cpu/ops/fp8_rows.h: owns the layout of rows of activations in exact.fp8: e4m3 numbers in binary32 [K] or as
// pairs [K / 2], and behind the room for binary32 the scales of their groups (reference/ops/fp8_matmul.h).
#pragma once

#include <cstdint>

#include "reference/numerics/fp8.h"

namespace verbatim::cpu {

struct Fp8RowPlaces {
    static constexpr int64_t kColumns = 32;  // a float of room for scales in each

    int64_t num_k = 0;  // a multiple of kColumns

    [[nodiscard]] constexpr int64_t scales() const { return num_k; }
    [[nodiscard]] constexpr int64_t stride() const { return num_k + num_k / kColumns; }
};
static_assert(Fp8RowPlaces::kColumns <= reference::kFp8Group);

}  // namespace verbatim::cpu
