// kernels/cpu/ops/int8_layout.h: owns the layouts in which the CPU multiplies in the profile exact.int8: panels of 64
// outputs of weights in blocks (kernels/cpu/int8_panels.h makes them), and rows of int8 activations.
//
// A panel is its blocks of K, one after another, read in the order of their bytes (docs/kernels.md). A block has
//   R runs, each of
//     quants + zero, four neighbouring columns of an output in one word:
//       kBytes, kWideBytes  [run_weights / 4][64][4]
//       kNibbles            [run_weights / 8][64][4]: columns 8j ... 8j + 3 in the low nibbles, the next four in the
//                           high ones
//     integer scales [64] of int8, of types that have them
//   integer minima [R / 2][64][2] of uint8, of types that have integer scales and minima
//   scales [64] of fp16, of quantised checkpoints of binary32; offsets [64] of fp16 with minima
// A row of activations: int8 [K]; scales [K / 32 or K / 256] of binary32 at K; sums of 16 [K / 16] of int32 behind
// K / 32 words for scales. See reference/ops/int8_matmul.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/packed_matrix.h"

namespace verbatim::cpu {

enum class QuantKind : uint8_t {
    kNibbles,
    kBytes,      // at most 63, so that two products with int8 fit int16
    kWideBytes,  // any; zero = 128
};

// What a kernel is compiled for.
struct Int8Kind {
    QuantKind quants = QuantKind::kBytes;
    int run_weights = 32;  // or 16
    bool has_scales = false;
    bool has_minima = false;
    bool has_wide_scale = false;  // binary32; then neither of the above
    friend constexpr bool operator==(const Int8Kind&, const Int8Kind&) = default;
};

struct Int8Layout {
    static constexpr int64_t kHalfBytes = 2 * kPanelOutputs;  // of a vector of 64 fp16
    static constexpr int64_t kFloatBytes = 4 * kPanelOutputs;
    static constexpr int64_t kWordBytes = 4 * kPanelOutputs;  // of the outputs' words

    Int8Kind kind;
    int64_t weights = 0;  // of a block and output
    int32_t zero = 0;

    [[nodiscard]] constexpr int64_t num_runs() const { return weights / kind.run_weights; }
    [[nodiscard]] constexpr int64_t scales_offset() const {  // in a run
        return kind.run_weights * kPanelOutputs / (kind.quants == QuantKind::kNibbles ? 2 : 1);
    }
    [[nodiscard]] constexpr int64_t run_bytes() const {
        return scales_offset() + (kind.has_scales ? kPanelOutputs : 0);
    }
    [[nodiscard]] constexpr int64_t minima_offset() const { return num_runs() * run_bytes(); }
    [[nodiscard]] constexpr int64_t scale_offset() const {
        return minima_offset() + (kind.has_scales && kind.has_minima ? num_runs() * kPanelOutputs : 0);
    }
    [[nodiscard]] constexpr int64_t num_bytes() const {
        if (kind.has_wide_scale) return scale_offset() + kFloatBytes;
        return scale_offset() + kHalfBytes * (kind.has_minima ? 2 : 1);
    }
    // REQUIRES: whole blocks.
    [[nodiscard]] constexpr int64_t panel_bytes(int64_t num_k) const { return num_k / weights * num_bytes(); }
};

inline constexpr int64_t kInt8SumColumns = 16;  // of a sum of activations

// The places in a row of activations. An odd number of cache lines apart, rows do not compete for cache sets.
struct Int8RowPlaces {
    int64_t num_k = 0;  // a multiple of 32

    [[nodiscard]] constexpr int64_t scales() const { return num_k; }
    [[nodiscard]] constexpr int64_t sums() const { return num_k + num_k / 8; }
    [[nodiscard]] constexpr int64_t stride() const {
        constexpr int64_t kLine = 64;
        return ((sums() + num_k / 4 + kLine - 1) / kLine | 1) * kLine;
    }
};

// A few or many rows times a panel: out[r][lane] = `total` of reference/ops/int8_matmul.h.
struct Int8PanelArgs {
    const std::byte* rows = nullptr;  // [num_rows] of Int8RowPlaces
    int64_t num_rows = 0;
    Int8Layout layout;
    const std::byte* panel = nullptr;
    int64_t num_k = 0;     // whole blocks
    float* out = nullptr;  // [num_rows, 64]
};

}  // namespace verbatim::cpu
