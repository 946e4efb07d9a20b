// kernels/cpu/ops/row_loops.h: owns the loops of RowOps. Each instruction set's .cc includes it once inside its target,
// so the compiler vectorises the same text for each, together with the functions of exact_math.h or fast_math.h. Lanes
// are different outputs; a sum has the partials of NUMERICS N4. VERBATIM_LOOP says how a loop is compiled.
#pragma once

#include <cstring>

#include "kernels/cpu/ops/row_ops.h"
#include "kernels/transpose.h"
#include "reference/numerics/bf16.h"
#include "reference/numerics/constants.h"
#include "reference/numerics/fp8.h"
#include "reference/numerics/half.h"
#include "reference/numerics/math.h"

namespace verbatim::cpu {
namespace {

VERBATIM_LOOP void round_to_floats(const float* __restrict x, int64_t count, float multiplier, float* __restrict out) {
    for (int64_t k = 0; k < count; ++k) out[k] = reference::bf16_value(x[k] * multiplier);
    if (count % 2 == 1) out[count] = 0.0F;
}

// A bf16 value's bits as the upper half of a word; the lower half is zero.
inline uint32_t upper_bits(float x) { return reference::bits_from_float(reference::bf16_value(x)); }

VERBATIM_LOOP void round_to_pairs(const float* __restrict x, int64_t count, float multiplier, Pair* __restrict out) {
    for (int64_t j = 0; j < count / 2; ++j) {
        out[j] = upper_bits(x[2 * j] * multiplier) >> 16 | upper_bits(x[2 * j + 1] * multiplier);
    }
    if (count % 2 == 1) out[count / 2] = upper_bits(x[count - 1] * multiplier) >> 16;
}

// rows [.., stride] to out [count, width].
template <typename Element>
inline void interleave(const Element* rows, int64_t stride, int64_t count, int64_t width, Element* out) {
    const int64_t square_rows = width / kSquareSide * kSquareSide;
    const int64_t square_columns = count / kSquareSide * kSquareSide;
    for (int64_t k = 0; k < square_columns; k += kSquareSide) {
        for (int64_t r = 0; r < square_rows; r += kSquareSide) {
            transpose_square(rows + r * stride + k, stride, out + k * width + r, width);
        }
    }
    for (int64_t k = 0; k < count; ++k) {
        const int64_t done = k < square_columns ? square_rows : 0;
        for (int64_t r = done; r < width; ++r) out[k * width + r] = rows[r * stride + k];
    }
}

// `per_pair`: elements of a pair of K.
template <int64_t per_pair, typename Element, typename Round>
inline void round_interleaved(const RoundBandArgs& args, Element* out, const Round& round) {
    constexpr int64_t kBlock = 64;  // of K, rounded at a time
    constexpr int64_t kStride = kBlock / 2 * per_pair;
    Element rounded[kMaxBandRows][kStride] = {};
    for (int64_t first = 0; first < args.count; first += kBlock) {
        const int64_t count = args.count - first < kBlock ? args.count - first : kBlock;
        for (int64_t r = 0; r < args.num_rows; ++r) {
            round(args.x + r * args.stride + first, count, args.multiplier, rounded[r]);
        }
        interleave(rounded[0], kStride, num_pairs(count) * per_pair, args.width,
                   out + first / 2 * per_pair * args.width);
    }
}

VERBATIM_LOOP void round_to_band(const RoundBandArgs& args) {
    if (args.pairs != nullptr) return round_interleaved<1>(args, args.pairs, round_to_pairs);
    round_interleaved<2>(args, args.out, round_to_floats);
}

// The magnitude's bits order as the magnitudes do, NaN last.
inline int32_t greatest_magnitude(const float* x, int64_t count) {
    int32_t greatest = 0;
    for (int64_t k = 0; k < count; ++k) {
        const auto magnitude = static_cast<int32_t>(reference::bits_from_float(x[k]) & 0x7FFFFFFFU);
        greatest = magnitude > greatest ? magnitude : greatest;
    }
    return greatest;
}

// The scale of activations that share one, and what they are multiplied by; 0: all are 0.
inline float int8_scale(float greatest, reference::Int8Sharing sharing, float& factor) {
    factor = 0.0F;
    if (!reference::is_finite(greatest)) return reference::float_from_bits(reference::kQuietNanBits);
    if (sharing != reference::Int8Sharing::kBlocksOf32) {
        if (greatest < reference::kLeastInt8Magnitude) return 0.0F;
        factor = 127.0F / greatest;
        return sharing == reference::Int8Sharing::kRow ? greatest / 127.0F : 1.0F / factor;
    }
    const float exact = greatest / 127.0F;
    const float scale = reference::half_to_float(reference::round_to_half(exact));
    if (scale != 0.0F) factor = 1.0F / exact;
    return scale;
}

inline float magnitude_of(int32_t bits) { return reference::float_from_bits(static_cast<uint32_t>(bits)); }

// Of all of a row, whose elements are multiplied a second time when they are quantised.
inline float int8_row_scale(const QuantiseRowArgs& args, float& factor) {
    float values[reference::kSmallInt8Block];
    int32_t greatest = 0;
    for (int64_t first = 0; first < args.count; first += reference::kSmallInt8Block) {
        for (int64_t k = 0; k < reference::kSmallInt8Block; ++k) values[k] = args.x[first + k] * args.multiplier;
        const int32_t of_block = greatest_magnitude(values, reference::kSmallInt8Block);
        greatest = of_block > greatest ? of_block : greatest;
    }
    return int8_scale(magnitude_of(greatest), args.sharing, factor);
}

// Adding 1.5 · 2^23 rounds to an integer, to nearest even, in the low bits.
VERBATIM_LOOP void quantise_row(const QuantiseRowArgs& args) {
    constexpr float kMagic = 0x1.8p23F;
    constexpr int64_t kSum = 16;
    float values[reference::kLargeInt8Block];
    int32_t integers[reference::kLargeInt8Block];
    const int64_t block = scale_columns(args.sharing);
    const bool by_row = args.sharing == reference::Int8Sharing::kRow;
    float factor = 0.0F;
    float scale = by_row ? int8_row_scale(args, factor) : 0.0F;
    for (int64_t first = 0; first < args.count; first += block) {
        for (int64_t k = 0; k < block; ++k) values[k] = args.x[first + k] * args.multiplier;
        if (!by_row) scale = int8_scale(magnitude_of(greatest_magnitude(values, block)), args.sharing, factor);
        args.scales[first / block] = scale;
        if (factor == 0.0F) std::memset(values, 0, sizeof(values));  // also of NaN and infinity
        for (int64_t k = 0; k < block; ++k) {
            const uint32_t bits = reference::bits_from_float(values[k] * factor + kMagic);
            integers[k] = static_cast<int32_t>(bits - reference::bits_from_float(kMagic));
        }
        for (int64_t k = 0; k < block; ++k) args.quants[first + k] = static_cast<int8_t>(integers[k]);
        for (int64_t j = 0; j < block / kSum; ++j) {
            int32_t sum = 0;
            for (int64_t k = 0; k < kSum; ++k) sum += integers[j * kSum + k];
            args.sums[first / kSum + j] = sum;
        }
    }
}

inline float fp8_scale(float greatest, float static_scale) {
    if (!reference::is_finite(greatest)) return reference::float_from_bits(reference::kQuietNanBits);
    return static_scale > 0.0F ? static_scale : greatest / reference::kGreatestE4m3;
}

// Columns [first, first + count) of a row, at most kFp8Group, times the multiplier. Returns greatest_magnitude().
inline int32_t scaled_columns(const QuantiseFp8RowArgs& args, int64_t first, int64_t count, float* __restrict values) {
    const float* __restrict x = args.x + first;
    for (int64_t k = 0; k < count; ++k) values[k] = x[k] * args.factors.multiplier;
    return greatest_magnitude(values, count);
}

// The columns of a row that share its scale are multiplied a second time when they are rounded.
VERBATIM_LOOP void quantise_fp8_row(const QuantiseFp8RowArgs& args) {
    constexpr int64_t kColumns = reference::kFp8Group;
    float values[kColumns];
    const bool by_row = args.sharing == reference::Fp8Sharing::kRow;
    const auto count_from = [&](int64_t first) {
        return kColumns < args.count - first ? kColumns : args.count - first;
    };
    int32_t greatest = 0;
    if (by_row) {
        for (int64_t first = 0; first < args.count; first += kColumns) {
            const int32_t of_columns = scaled_columns(args, first, count_from(first), values);
            greatest = of_columns > greatest ? of_columns : greatest;
        }
    }
    for (int64_t first = 0; first < args.count; first += kColumns) {
        const int64_t count = count_from(first);
        const int32_t of_columns = scaled_columns(args, first, count, values);
        const float scale = fp8_scale(magnitude_of(by_row ? greatest : of_columns), args.factors.static_scale);
        args.scales[by_row ? 0 : first / kColumns] = scale;
        if (scale > 0.0F)
            for (int64_t k = 0; k < count; ++k) values[k] = reference::round_to_e4m3(values[k] / scale);
        else
            std::memset(values, 0, sizeof(values));
        if (args.pairs == nullptr) {
            std::memcpy(args.values + first, values, static_cast<size_t>(count) * sizeof(float));
        } else {
            Pair* __restrict pairs = args.pairs + first / 2;
            for (int64_t j = 0; j < count / 2; ++j) pairs[j] = make_pair_of(values[2 * j], values[2 * j + 1]);
        }
    }
}

VERBATIM_LOOP void add_scaled(const AddScaledArgs& args) {
    constexpr int64_t kLanes = 64;
    const float* __restrict scales = args.weight_scales;
    const float* __restrict sums = args.sums;
    float* __restrict totals = args.totals;
    for (int64_t i = 0; i < kLanes; ++i) totals[i] = reference::fma_f32(scales[i] * args.row_scale, sums[i], totals[i]);
}

VERBATIM_LOOP void widen_int8(const Int8Pair* __restrict in, int64_t count, Pair* __restrict out) {
    for (int64_t i = 0; i < count; ++i) {
        const uint32_t both = in[i];
        const float even = reference::float_from_bits((both & 0xFFU) | kInt8Magic) - kInt8Offset;
        const float odd = reference::float_from_bits(both >> 8 | kInt8Magic) - kInt8Offset;
        out[i] = make_pair_of(even, odd);
    }
}

// N4's halving of 64 partial sums.
inline float halve(float* partial) {
    for (int64_t j = 0; j < 32; ++j) partial[j] += partial[j + 32];
    for (int64_t j = 0; j < 16; ++j) partial[j] += partial[j + 16];
    for (int64_t j = 0; j < 8; ++j) partial[j] += partial[j + 8];
    for (int64_t j = 0; j < 4; ++j) partial[j] += partial[j + 4];
    return (partial[0] + partial[2]) + (partial[1] + partial[3]);
}
static_assert(reference::kNormPartials == 64, "halve() is written for 64");

// N4's sum of squares, compiled for the instruction set of the calling loop.
[[gnu::always_inline]] inline float sum_squares(const float* x, int64_t count) {
    constexpr int64_t kPartials = reference::kNormPartials;
    float partial[kPartials] = {};
    const int64_t whole = count - count % kPartials;
    for (int64_t first = 0; first < whole; first += kPartials) {
        for (int64_t j = 0; j < kPartials; ++j) {
            partial[j] = reference::fma_f32(x[first + j], x[first + j], partial[j]);
        }
    }
    for (int64_t i = whole; i < count; ++i) partial[i - whole] = reference::fma_f32(x[i], x[i], partial[i - whole]);
    return halve(partial);
}

VERBATIM_LOOP void rms_norm(const float* x, const float* weight, float eps, int64_t count, float* out) {
    const float mean = sum_squares(x, count) / static_cast<float>(count);
    const float scale = 1.0F / reference::sqrt_f32(mean + eps);
    for (int64_t i = 0; i < count; ++i) out[i] = (x[i] * scale) * weight[i];
}

VERBATIM_LOOP void l2_norm(float scale, int64_t count, float* x) {
    const float root = reference::sqrt_f32(sum_squares(x, count) + reference::kL2Eps);
    for (int64_t i = 0; i < count; ++i) x[i] = (x[i] / root) * scale;
}

VERBATIM_LOOP void sigmoid_gate(const float* __restrict gate, int64_t count, float* __restrict x) {
    for (int64_t i = 0; i < count; ++i) x[i] = x[i] * loop_math::sigmoid(gate[i]);
}

VERBATIM_LOOP void silu_gate(const float* __restrict z, int64_t count, float* __restrict y) {
    for (int64_t i = 0; i < count; ++i) y[i] = y[i] * loop_math::silu(z[i]);
}

VERBATIM_LOOP void swiglu(const float* __restrict gate, float multiplier, int64_t count, float* __restrict up) {
    for (int64_t i = 0; i < count; ++i) up[i] = up[i] * loop_math::silu(gate[i] * multiplier);
}

VERBATIM_LOOP void relu_squared(int64_t count, float* up) {
    for (int64_t i = 0; i < count; ++i) {
        const float rectified = reference::max_f32(up[i], 0.0F);
        up[i] = rectified * rectified;
    }
}

VERBATIM_LOOP void scale_row(float multiplier, int64_t count, float* x) {
    for (int64_t i = 0; i < count; ++i) x[i] = x[i] * multiplier;
}

VERBATIM_LOOP void scale_logits(float multiplier, float divisor, int64_t count, float* logits) {
    for (int64_t i = 0; i < count; ++i) logits[i] = (logits[i] * multiplier) / divisor;
}

VERBATIM_LOOP void add_branch(const float* __restrict branch, float branch_multiplier, float residual_multiplier,
                              int64_t count, float* __restrict residual) {
    for (int64_t i = 0; i < count; ++i) {
        residual[i] = reference::fma_f32(branch[i] * branch_multiplier, residual_multiplier, residual[i]);
    }
}

VERBATIM_LOOP void embed(const uint16_t* __restrict entry, float multiplier, int64_t count, float* __restrict out) {
    for (int64_t i = 0; i < count; ++i) out[i] = reference::bf16_to_float(entry[i]) * multiplier;
}

VERBATIM_LOOP void rope_head(const float* __restrict cos, const float* __restrict sin, int64_t n_pairs,
                             float* __restrict x) {
    float* __restrict y = x + n_pairs;
    for (int64_t i = 0; i < n_pairs; ++i) {
        const float a = x[i];
        const float b = y[i];
        x[i] = reference::fma_f32(a, cos[i], -(b * sin[i]));
        y[i] = reference::fma_f32(b, cos[i], a * sin[i]);
    }
}

VERBATIM_LOOP void route_row(const RouteArgs& args) {
    constexpr int64_t kLanes = 64;
    float total[kLanes] = {};
    for (int64_t first = 0; first < args.num_k; first += reference::kDotChunk) {
        const int64_t last = first + reference::kDotChunk < args.num_k ? first + reference::kDotChunk : args.num_k;
        float acc[kLanes] = {};
        for (int64_t k = first; k < last; k += 2) {
            const float* __restrict even = args.weight + k * kLanes;
            const float* __restrict odd = even + kLanes;
            for (int64_t e = 0; e < kLanes; ++e) acc[e] = reference::fma_f32(args.x[k + 1], odd[e], acc[e]);
            for (int64_t e = 0; e < kLanes; ++e) acc[e] = reference::fma_f32(args.x[k], even[e], acc[e]);
        }
        for (int64_t e = 0; e < kLanes; ++e) total[e] += acc[e];
    }
    for (int64_t e = 0; e < kLanes; ++e) args.out[e] = total[e];
}

template <int num_taps>
inline void conv_taps(const ConvRowArgs& args) {
    const float* __restrict bias = args.bias;
    float* __restrict out = args.out;
    for (int64_t c = 0; c < args.count; ++c) {
        float acc = bias[c];
        for (int j = 0; j < num_taps; ++j) acc = reference::fma_f32(args.weights[j][c], args.inputs[j][c], acc);
        out[c] = loop_math::silu(acc);
    }
}

VERBATIM_LOOP void conv_row(const ConvRowArgs& args) {
    if (args.num_taps == 2) conv_taps<2>(args);
    if (args.num_taps == 3) conv_taps<3>(args);
    if (args.num_taps == 4) conv_taps<4>(args);
}

VERBATIM_LOOP void time_steps(const TimeStepArgs& args) {
    const float* __restrict raw = args.raw;
    float* __restrict dt = args.dt;
    float* __restrict decay = args.decay;
    for (int64_t h = 0; h < args.n_heads; ++h) {
        const float step = loop_math::softplus(raw[h] + args.bias[h]);
        const float limited = step > args.dt_max ? args.dt_max : step;
        dt[h] = step < args.dt_min ? args.dt_min : limited;
        decay[h] = loop_math::exp(dt[h] * args.a[h]);
    }
}

VERBATIM_LOOP void delta_gates(const DeltaGateArgs& args) {
    float* __restrict beta = args.beta;
    float* __restrict decay = args.decay;
    for (int64_t h = 0; h < args.n_heads; ++h) {
        beta[h] = loop_math::sigmoid(beta[h]);
        decay[h] = loop_math::exp(loop_math::softplus(decay[h] + args.bias[h]) * args.rate[h]);
    }
}

VERBATIM_LOOP bool is_finite_row(const float* x, int64_t count) {
    constexpr uint32_t kExponent = 0x7F800000U;
    uint32_t greatest = 0;
    for (int64_t i = 0; i < count; ++i) {
        const uint32_t exponent = reference::bits_from_float(x[i]) & kExponent;
        greatest = exponent > greatest ? exponent : greatest;
    }
    return greatest != kExponent;
}

// Maps binary32 to integers with the same order; both zeros map to 0.
inline int32_t ordered(float x) {
    const auto bits = static_cast<int32_t>(reference::bits_from_float(x));
    return bits < 0 ? static_cast<int32_t>(0x80000000U - static_cast<uint32_t>(bits)) : bits;
}

VERBATIM_LOOP int32_t arg_max(const float* x, int64_t count) {
    int32_t greatest = INT32_MIN;
    for (int64_t i = 0; i < count; ++i) greatest = ordered(x[i]) > greatest ? ordered(x[i]) : greatest;
    int64_t i = 0;
    while (ordered(x[i]) != greatest) ++i;
    return static_cast<int32_t>(i);
}

constexpr RowOps kRowOps{.round_to_floats = round_to_floats,
                         .round_to_pairs = round_to_pairs,
                         .round_to_band = round_to_band,
                         .quantise = quantise_row,
                         .quantise_fp8 = quantise_fp8_row,
                         .add_scaled = add_scaled,
                         .widen_int8 = widen_int8,
                         .rms_norm = rms_norm,
                         .silu_gate = silu_gate,
                         .swiglu = swiglu,
                         .relu_squared = relu_squared,
                         .scale = scale_row,
                         .scale_logits = scale_logits,
                         .add_branch = add_branch,
                         .embed = embed,
                         .rope = rope_head,
                         .route = route_row,
                         .conv = conv_row,
                         .time_steps = time_steps,
                         .delta_gates = delta_gates,
                         .l2_norm = l2_norm,
                         .sigmoid_gate = sigmoid_gate,
                         .is_finite = is_finite_row,
                         .arg_max = arg_max};

}  // namespace
}  // namespace verbatim::cpu
