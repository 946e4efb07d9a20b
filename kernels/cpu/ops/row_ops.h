// kernels/cpu/ops/row_ops.h: owns the tables of single-pass row operations, one per instruction set. The same plain
// loops (kernels/cpu/ops/row_loops.h) are compiled for each; the bits are those of reference/ops/.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/pair.h"
#include "reference/model/integer_blocks.h"
#include "reference/numerics/fp8.h"

namespace verbatim::cpu {

inline constexpr int64_t kMaxConvTaps = 4;

// Rows that share a panel's chunk in the cache: a block. No band crosses from one block to the next.
inline constexpr int64_t kMatmulRows = 120;

// Rows of a matmul interleaved element by element: [K, width]. Rows that do not exist are +0.
struct BandShape {
    int64_t rows = 0;   // per band when there are many rows
    int64_t step = 1;   // widths are multiples of it
    int64_t least = 1;  // width
    int64_t most = 0;   // a few rows that are no multiple of `rows` are divided evenly, up to so many per band

    static constexpr int64_t kFewRows = 32;

    // The width of the band that begins at row `first` of `num_rows`. REQUIRES: a band begins there.
    [[nodiscard]] constexpr int64_t width(int64_t first, int64_t num_rows) const {
        const int64_t left = std::min(num_rows - first, kMatmulRows - first % kMatmulRows);
        if (most > 0 && left <= kFewRows && left % rows != 0) return share(left, share(left, most));
        return std::clamp(share(left, step) * step, least, rows);
    }
    // Calls band(first row, width) for each band.
    template <typename Band>
    constexpr void for_each_band(int64_t num_rows, const Band& band) const {
        for (int64_t first = 0, next = 0; first < num_rows; first = next) {
            const int64_t its_width = width(first, num_rows);
            band(first, its_width);
            next = first + its_width;
        }
    }

private:
    static constexpr int64_t share(int64_t whole, int64_t parts) { return (whole + parts - 1) / parts; }
};
// By one vector of 16 outputs: as many sums as fit 32 registers, and enough to keep two fma units with a latency of
// four busy.
inline constexpr BandShape kWideBands{.rows = 24, .step = 4, .least = 8};
inline constexpr BandShape kNarrowBands{.rows = 6};  // by two vectors of 8 outputs: the sums fit 16 registers
// By four vectors of 16 outputs, by two for more than 6 rows.
inline constexpr BandShape kPairBands{.rows = 6, .most = 8};
inline constexpr int64_t kMaxBandRows = kWideBands.rows;
static_assert(kMatmulRows % kWideBands.rows == 0 && kMatmulRows % kNarrowBands.rows == 0 &&
              kMatmulRows % kPairBands.rows == 0);

// Interleaved rows, bf16(x[r · stride + k] · multiplier), K padded with +0 to whole pairs.
struct RoundBandArgs {
    const float* x = nullptr;  // [num_rows, count]
    int64_t stride = 0;        // between rows
    int64_t num_rows = 0;      // at most `width`
    int64_t count = 0;
    float multiplier = 1.0F;
    int64_t width = 0;      // of the band
    float* out = nullptr;   // [2 · num_pairs(count), width], or null
    Pair* pairs = nullptr;  // replaces `out`: [num_pairs(count), width]
};

// One token and some channels of reference/ops/conv1d.h.
struct ConvRowArgs {
    int64_t num_taps = 0;
    const float* inputs[kMaxConvTaps] = {};   // [count] each, oldest first
    const float* weights[kMaxConvTaps] = {};  // [count] each
    const float* bias = nullptr;              // [count]
    int64_t count = 0;
    float* out = nullptr;  // [count]; must not alias the inputs
};

// One token's time steps by head: reference/ops/ssm_scan.h.
struct TimeStepArgs {
    const float* raw = nullptr;   // [n_heads]
    const float* bias = nullptr;  // [n_heads]
    const float* a = nullptr;     // [n_heads]
    float dt_min = 0.0F;
    float dt_max = 0.0F;
    int64_t n_heads = 0;
    float* dt = nullptr;     // [n_heads], after softplus and limits
    float* decay = nullptr;  // [n_heads], exp(dt · A)
};

// One row by 64 experts of a router: reference/ops/router.h.
struct RouteArgs {
    const float* x = nullptr;       // [2 · num_pairs(K)], rounded
    const float* weight = nullptr;  // [2 · num_pairs(K), 64]
    int64_t num_k = 0;              // K, even or padded to it
    float* out = nullptr;           // [64]
};

// One token's gates of a delta net by value head, in place: reference/ops/delta.h.
struct DeltaGateArgs {
    const float* bias = nullptr;  // [n_heads]
    const float* rate = nullptr;  // [n_heads]
    int64_t n_heads = 0;
    float* beta = nullptr;   // [n_heads], from b
    float* decay = nullptr;  // [n_heads], from a
};

// One row of activations in int8: reference/ops/int8_matmul.h, in the places of kernels/cpu/ops/int8_layout.h.
struct QuantiseRowArgs {
    const float* x = nullptr;  // [count]
    int64_t count = 0;         // whole blocks
    float multiplier = 1.0F;
    reference::Int8Sharing sharing = reference::Int8Sharing::kBlocksOf32;
    int8_t* quants = nullptr;  // [count]
    float* scales = nullptr;   // [count / scale_columns(sharing)]
    int32_t* sums = nullptr;   // [count / 16]
};

// One row of activations in e4m3: reference/ops/fp8_matmul.h, in the places of kernels/cpu/ops/fp8_rows.h.
struct QuantiseFp8RowArgs {
    const float* x = nullptr;  // [count]
    int64_t count = 0;         // a multiple of 32
    reference::RowFactors factors;
    reference::Fp8Sharing sharing = reference::Fp8Sharing::kRow;
    float* values = nullptr;  // [count], or null:
    Pair* pairs = nullptr;    // [count / 2]
    float* scales = nullptr;  // of the groups in order
};

// Of reference/ops/fp8_matmul.h: totals[i] = fma(weight_scales[i] · row_scale, sums[i], totals[i]).
struct AddScaledArgs {
    const float* weight_scales = nullptr;  // [64]
    float row_scale = 0.0F;
    const float* sums = nullptr;  // [64]
    float* totals = nullptr;      // [64]
};

struct RowOps {
    // out[k] = bf16(x[k] · multiplier), padded with +0 to whole pairs: as binary32, [2 · num_pairs(count)], or as
    // pairs, [num_pairs(count)].                                                             reference/ops/matmul.h
    void (*round_to_floats)(const float* x, int64_t count, float multiplier, float* out) = nullptr;
    void (*round_to_pairs)(const float* x, int64_t count, float multiplier, Pair* out) = nullptr;
    void (*round_to_band)(const RoundBandArgs& args) = nullptr;
    void (*quantise)(const QuantiseRowArgs& args) = nullptr;
    void (*quantise_fp8)(const QuantiseFp8RowArgs& args) = nullptr;
    void (*add_scaled)(const AddScaledArgs& args) = nullptr;
    // Fast profile: weights as pairs: out[i] = both bytes of in[i] as bf16.
    void (*widen_int8)(const Int8Pair* in, int64_t count, Pair* out) = nullptr;
    // x and out may be the same.                                                           reference/ops/rms_norm.h
    void (*rms_norm)(const float* x, const float* weight, float eps, int64_t count, float* out) = nullptr;
    void (*silu_gate)(const float* z, int64_t count, float* y) = nullptr;  // reference/ops/gated_norm.h
    void (*swiglu)(const float* gate, float multiplier, int64_t count, float* up) = nullptr;        // .../elementwise.h
    void (*relu_squared)(int64_t count, float* up) = nullptr;                                       // .../elementwise.h
    void (*scale)(float multiplier, int64_t count, float* x) = nullptr;                             // .../elementwise.h
    void (*scale_logits)(float multiplier, float divisor, int64_t count, float* logits) = nullptr;  // .../elementwise.h
    void (*add_branch)(const float* branch, float branch_multiplier, float residual_multiplier, int64_t count,
                       float* residual) = nullptr;                                                // .../elementwise.h
    void (*embed)(const uint16_t* entry, float multiplier, int64_t count, float* out) = nullptr;  // .../embedding.h
    void (*rope)(const float* cos, const float* sin, int64_t n_pairs, float* x) = nullptr;  // one head, .../rope.h
    void (*route)(const RouteArgs& args) = nullptr;
    void (*conv)(const ConvRowArgs& args) = nullptr;
    void (*time_steps)(const TimeStepArgs& args) = nullptr;
    void (*delta_gates)(const DeltaGateArgs& args) = nullptr;
    void (*l2_norm)(float scale, int64_t count, float* x) = nullptr;             // one head, reference/ops/delta.h
    void (*sigmoid_gate)(const float* gate, int64_t count, float* x) = nullptr;  // reference/ops/elementwise.h
    bool (*is_finite)(const float* x, int64_t count) = nullptr;                  // N8: no NaN, no infinity
    int32_t (*arg_max)(const float* x, int64_t count) = nullptr;                 // lowest index of the greatest; no NaN
};

}  // namespace verbatim::cpu
