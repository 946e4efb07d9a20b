// reference/numerics/tensor_lanes.h: tensor_group (tensor_sm90.h) for many outputs in parallel, in operations that
// vector units have. The same bits, for values as NUMERICS N2 leaves them:
//
//   L1  a product of two of them is exact in binary32 while its exponent is at most 126, and so is its multiple by a
//       power of two, or it is below 1 and cut to zero: converting to an integer is the cut toward zero
//   L2  every term is a multiple of 2^-126: aligning to an exponent below -101 cuts nothing, so the exponent may be
//       raised to -101
//   L3  a group with a lane that is not finite, beyond 2^126, or too large for 32 bits is left to tensor_group
#pragma once

#include <cstdint>

#include "reference/numerics/tensor_sm90.h"

namespace verbatim::reference {

#define VERBATIM_INLINE inline __attribute__((always_inline))

inline constexpr int32_t kTensorNothing = -10'000;      // exponent of a zero: no product with it is the largest
inline constexpr int32_t kTensorNotFinite = 1'000'000;  // exponent of an infinity or a NaN: every product with it is
inline constexpr int32_t kTensorMostExponent = 126;     // L1
inline constexpr int32_t kTensorLeastExponent = kTensorFractionBits - 126;  // L2
// With the accumulator's term, below 2^26, and a rounding to binary32 still below 2^31.
inline constexpr int32_t kTensorMostSum = INT32_MAX - (1 << 26) - (1 << 8);

VERBATIM_INLINE int32_t tensor_exponent(float x) {
    const auto field = static_cast<int32_t>(bits_from_float(x) >> 23 & 0xFFU);
    return field == 0 ? kTensorNothing : field == 0xFF ? kTensorNotFinite : field - 127;
}

// One side of a group: an output's weights in each lane, or a row's inputs (kLanes = 1). Values are bf16.
template <int kLanes>
struct TensorOperand {
    float values[kTensorGroup][kLanes];
    int32_t exponents[kTensorGroup][kLanes];

    VERBATIM_INLINE void set(int k, int lane, uint16_t bits) { set_value(k, lane, bf16_to_float(bits)); }
    VERBATIM_INLINE void set_value(int k, int lane, float value) {
        values[k][lane] = value;
        exponents[k][lane] = tensor_exponent(value);
    }
    VERBATIM_INLINE void bits_of(int lane, uint16_t* out) const {
        for (int k = 0; k < kTensorGroup; ++k) out[k] = static_cast<uint16_t>(bits_from_float(values[k][lane]) >> 16);
    }
};

// acc[lane] + Σ a[k] · b[k][lane], lane by lane.
template <int kLanes>
inline void tensor_group_one_by_one(const TensorOperand<1>& a, const TensorOperand<kLanes>& b, float* acc) {
    uint16_t x[kTensorGroup];
    uint16_t y[kTensorGroup];
    a.bits_of(0, x);
    for (int lane = 0; lane < kLanes; ++lane) {
        b.bits_of(lane, y);
        acc[lane] = tensor_group(x, y, acc[lane]);
    }
}

// (-1)^(sum < 0) · |sum| · unit, toward zero. REQUIRES: |sum| < 2^31 - 2^8, a result that is no subnormal.
VERBATIM_INLINE float tensor_cut(int32_t sum, float unit) {
    const int32_t magnitude = sum < 0 ? -sum : sum;
    const auto nearest = static_cast<float>(magnitude);
    const uint32_t down = static_cast<int32_t>(nearest) > magnitude ? 1U : 0U;
    const float cut = float_from_bits(bits_from_float(nearest) - down) * unit;
    return float_from_bits(bits_from_float(cut) | (sum < 0 ? 0x80000000U : 0U));
}

// The same for each lane.
template <int kLanes>
VERBATIM_INLINE void tensor_group_lanes(const TensorOperand<1>& a, const TensorOperand<kLanes>& b, float* acc) {
    int32_t largest[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) largest[lane] = tensor_exponent(acc[lane]);
    for (int k = 0; k < kTensorGroup; ++k) {
        for (int lane = 0; lane < kLanes; ++lane) {
            const int32_t exponent = a.exponents[k][0] + b.exponents[k][lane];
            largest[lane] = exponent > largest[lane] ? exponent : largest[lane];
        }
    }
    int32_t beyond = 0;
    for (int lane = 0; lane < kLanes; ++lane) beyond |= largest[lane] > kTensorMostExponent ? 1 : 0;
    if (beyond != 0) return tensor_group_one_by_one(a, b, acc);
    float scale[kLanes];  // 2^(25 - exponent)
    for (int lane = 0; lane < kLanes; ++lane) {
        largest[lane] = largest[lane] < kTensorLeastExponent ? kTensorLeastExponent : largest[lane];
        scale[lane] = float_from_bits(static_cast<uint32_t>(127 + kTensorFractionBits - largest[lane]) << 23);
    }
    int32_t sum[kLanes] = {};
    for (int k = 0; k < kTensorGroup; ++k) {
        for (int lane = 0; lane < kLanes; ++lane) {
            sum[lane] += static_cast<int32_t>(a.values[k][0] * b.values[k][lane] * scale[lane]);
        }
    }
    for (int lane = 0; lane < kLanes; ++lane) {
        beyond |= sum[lane] > kTensorMostSum || sum[lane] < -kTensorMostSum ? 1 : 0;
    }
    if (beyond != 0) return tensor_group_one_by_one(a, b, acc);
    for (int lane = 0; lane < kLanes; ++lane) {
        const float unit = float_from_bits(static_cast<uint32_t>(127 - kTensorFractionBits + largest[lane]) << 23);
        acc[lane] = tensor_cut(sum[lane] + static_cast<int32_t>(acc[lane] * scale[lane]), unit);
    }
}

// total[lane] = tensor_dot of a[i] and b(i, lane) over i < count: bf16 values as binary32.
template <int kLanes, typename Column>
VERBATIM_INLINE void tensor_dots(const float* a, int64_t count, const Column& b, float* total) {
    for (int lane = 0; lane < kLanes; ++lane) total[lane] = 0.0F;
    for (int64_t first = 0; first < count; first += kTensorChunk) {
        const int64_t last = first + kTensorChunk < count ? first + kTensorChunk : count;
        float acc[kLanes] = {};
        for (int64_t i = first; i < last; i += kTensorGroup) {
            TensorOperand<1> x;
            TensorOperand<kLanes> y;
            for (int k = 0; k < kTensorGroup; ++k) {
                const bool there = i + k < last;
                x.set_value(k, 0, there ? a[i + k] : 0.0F);
                for (int lane = 0; lane < kLanes; ++lane) y.set_value(k, lane, there ? b(i + k, lane) : 0.0F);
            }
            tensor_group_lanes(x, y, acc);
        }
        for (int lane = 0; lane < kLanes; ++lane) total[lane] += acc[lane];
    }
}

}  // namespace verbatim::reference
