// reference/model/integer_blocks.h: owns the integers in a block of quantised weights, from which the profile
// exact.int8 computes (reference/ops/int8_matmul.h).
//
//   I1  with j = k / run_weights, weight k is (scale · scales[j]) · quants[k], + offset · minima[j] with minima, each
//       operation rounded once: the value of quantised_blocks.h, bit for bit
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "reference/model/quantised_blocks.h"
#include "reference/numerics/int8_sharing.h"

namespace verbatim::reference {

inline constexpr int64_t kMaxBlockWeights = 256;
inline constexpr int64_t kMaxBlockRuns = 16;

struct IntegerBlock {
    float scale = 0.0F;
    float offset = 0.0F;            // with minima: fp16, as the scale
    int8_t scales[kMaxBlockRuns];   // 1 if the type has none
    uint8_t minima[kMaxBlockRuns];  // 0 ... 63; 1 if the type has an offset alone
    int8_t quants[kMaxBlockWeights];
};

struct IntegerFormat {
    std::string_view name;  // the BlockFormat's
    int32_t num_weights = 0;
    int32_t run_weights = 0;  // 16 or 32; of one integer scale
    bool has_scales = false;  // integers; also minima, if there are some
    bool has_minima = false;
    int32_t zero = 0;    // quants + zero is never negative
    int32_t levels = 0;  // quants + zero is less
    void (*read)(const std::byte* block, IntegerBlock& out) = nullptr;
    Int8Sharing sharing = Int8Sharing::kBlocksOf32;
    bool has_wide_scale = false;  // binary32, not fp16

    [[nodiscard]] int32_t num_runs() const { return num_weights / run_weights; }
};

// Null: the type has no integers (MXFP4; of scaled_blocks.h FP8_E4M3, FP4_E2M1, INT_ORDER), and is computed as in
// exact.
const IntegerFormat* find_integer_format(const BlockFormat& format);

}  // namespace verbatim::reference
