// kernels/sandbox/cuda/source_halves.h: owns CUDA's numbers of 16 and 8 bits for CUDA source on the emulator
// (kernels/sandbox/cuda/source.h includes it).
//
//   H1  __half, __nv_bfloat16 and their pairs: operators and intrinsics are rounded once, to nearest even, after each
//       operation, a fused one after both; so `half * half` is a half, also where a float is wanted
//   H2  __nv_fp8_e4m3, __nv_fp8_e5m2, pairs and fours of them: conversions, which saturate; __nv_cvt_float_to_fp8 and
//       its like
#pragma once

#include "kernels/sandbox/cuda/source.h"
#include "kernels/sandbox/small_floats.h"

// a * b + c in binary64 rounded to odd, so that a second rounding is the only one that counts.
inline double verbatim_fma_to_odd(double a, double b, double c) {
    const double product = a * b;  // exact: of two numbers of 11 bits
    const double sum = product + c, rest = sum - product;
    const double error = (product - (sum - rest)) + (c - rest);
    auto bits = std::bit_cast<uint64_t>(sum);
    if (error == error && error != 0.0 && (bits & 1U) == 0) bits += (error > 0.0) == (sum > 0.0) ? 1 : -1;
    return std::bit_cast<double>(bits);
}
// The same for binary64 to binary32.
inline float verbatim_to_odd(double x) {
    const auto nearest = static_cast<float>(x);
    auto bits = std::bit_cast<uint32_t>(nearest);
    if (x != x || static_cast<double>(nearest) == x || (bits & 1U) != 0) return nearest;
    bits += (std::fabs(static_cast<double>(nearest)) < std::fabs(x)) ? 1 : -1;
    return std::bit_cast<float>(bits);
}

struct __half_raw {
    unsigned short x;
};
struct __half2_raw {
    unsigned short x, y;
};
struct __nv_bfloat16_raw {
    unsigned short x;
};
struct __half {
    _Float16 value;
    __half() = default;
    constexpr __half(__half_raw raw) : value(std::bit_cast<_Float16>(raw.x)) {}
    constexpr operator __half_raw() const { return {std::bit_cast<unsigned short>(value)}; }
    template <typename T>
        requires std::is_arithmetic_v<T>
    constexpr __half(T x) : value(static_cast<_Float16>(x)) {}
    constexpr operator float() const { return static_cast<float>(value); }
};
struct __nv_bfloat16 {
    uint16_t bits;
    __nv_bfloat16() = default;
    constexpr __nv_bfloat16(__nv_bfloat16_raw raw) : bits(raw.x) {}
    constexpr operator __nv_bfloat16_raw() const { return {bits}; }
    constexpr __nv_bfloat16(float x) : bits(rounded(x)) {}
    template <typename T>
        requires std::is_arithmetic_v<T>
    constexpr __nv_bfloat16(T x) : bits(rounded(static_cast<float>(x))) {}
    constexpr operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

private:
    static constexpr uint16_t rounded(float x) {
        const auto whole = std::bit_cast<uint32_t>(x);
        const bool is_nan = (whole & 0x7FFFFFFFU) > 0x7F800000U;
        return static_cast<uint16_t>(is_nan ? 0x7FFFU : (whole + 0x7FFFU + (whole >> 16 & 1U)) >> 16);
    }
};
using half = __half;
using nv_bfloat16 = __nv_bfloat16;
using __nv_half = __half;

inline __half verbatim_fma(__half a, __half b, __half c) {
    __half result;
    result.value = static_cast<_Float16>(verbatim_fma_to_odd(float(a), float(b), float(c)));
    return result;
}
inline __nv_bfloat16 verbatim_fma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
    return __nv_bfloat16(verbatim_to_odd(verbatim_fma_to_odd(float(a), float(b), float(c))));
}

// An operation of binary32 rounded to 16 bits is rounded once: 24 bits are twice 11 and two.
#define VERBATIM_OPERATOR(One, op)                                             \
    inline One operator op(One a, One b) { return One(float(a) op float(b)); } \
    inline One& operator op##=(One& a, One b) { return a = One(float(a) op float(b)); }
#define VERBATIM_COMPARISON(One, op, name)                                 \
    inline bool operator op(One a, One b) { return float(a) op float(b); } \
    inline bool name(One a, One b) { return float(a) op float(b); }
#define VERBATIM_FUNCTION(One, name, call) \
    inline One name(One x) { return One(call); }
#define VERBATIM_PAIR_OPERATOR(Two, op)                                       \
    inline Two operator op(Two a, Two b) { return {a.x op b.x, a.y op b.y}; } \
    inline Two& operator op##=(Two& a, Two b) { return a = a op b; }
#define VERBATIM_PAIR_FUNCTION(Two, name, one) \
    inline Two name(Two a) { return {one(a.x), one(a.y)}; }
#define VERBATIM_PAIR_OF_TWO(Two, name, one) \
    inline Two name(Two a, Two b) { return {one(a.x, b.x), one(a.y, b.y)}; }

// __heq2 has 1 or 0 in each half, __hbeq2 is whether both hold.
#define VERBATIM_PAIR_COMPARISON(One, Two, name) \
    inline Two name##2(Two a, Two b) { return {One(name(a.x, b.x) ? 1 : 0), One(name(a.y, b.y) ? 1 : 0)}; }
// A NaN stays one.
template <typename One>
One verbatim_relu(One x) {
    return float(x) < 0.0F ? One(0.0F) : x;
}

#define VERBATIM_HALVES(One, Two)                                                                                     \
    VERBATIM_OPERATOR(One, +)                                                                                         \
    VERBATIM_OPERATOR(One, -)                                                                                         \
    VERBATIM_OPERATOR(One, *)                                                                                         \
    VERBATIM_OPERATOR(One, /)                                                                                         \
    inline One operator-(One x) { return One(-float(x)); }                                                            \
    VERBATIM_COMPARISON(One, ==, __heq)                                                                               \
    VERBATIM_COMPARISON(One, !=, __hne)                                                                               \
    VERBATIM_COMPARISON(One, <, __hlt)                                                                                \
    VERBATIM_COMPARISON(One, <=, __hle)                                                                               \
    VERBATIM_COMPARISON(One, >, __hgt)                                                                                \
    VERBATIM_COMPARISON(One, >=, __hge)                                                                               \
    inline bool __hisnan(One x) { return std::isnan(float(x)); }                                                      \
    inline int __hisinf(One x) { return !std::isinf(float(x)) ? 0 : float(x) > 0.0F ? 1 : -1; }                       \
    inline One __hadd(One a, One b) { return a + b; }                                                                 \
    inline One __hsub(One a, One b) { return a - b; }                                                                 \
    inline One __hmul(One a, One b) { return a * b; }                                                                 \
    inline One __hdiv(One a, One b) { return a / b; }                                                                 \
    inline One __hadd_rn(One a, One b) { return a + b; }                                                              \
    inline One __hsub_rn(One a, One b) { return a - b; }                                                              \
    inline One __hmul_rn(One a, One b) { return a * b; }                                                              \
    inline One __hfma(One a, One b, One c) { return verbatim_fma(a, b, c); }                                          \
    inline One __hneg(One x) { return -x; }                                                                           \
    VERBATIM_FUNCTION(One, __habs, std::fabs(float(x)))                                                               \
    inline One __hmax(One a, One b) { return One(max(float(a), float(b))); }                                          \
    inline One __hmin(One a, One b) { return One(min(float(a), float(b))); }                                          \
    VERBATIM_FUNCTION(One, hexp, std::exp(float(x)))                                                                  \
    VERBATIM_FUNCTION(One, hexp2, std::exp2(float(x)))                                                                \
    VERBATIM_FUNCTION(One, hlog, std::log(float(x)))                                                                  \
    VERBATIM_FUNCTION(One, hlog2, std::log2(float(x)))                                                                \
    VERBATIM_FUNCTION(One, hsqrt, std::sqrt(float(x)))                                                                \
    VERBATIM_FUNCTION(One, hrsqrt, rsqrtf(float(x)))                                                                  \
    VERBATIM_FUNCTION(One, hrcp, 1.0F / float(x))                                                                     \
    VERBATIM_FUNCTION(One, hsin, std::sin(float(x)))                                                                  \
    VERBATIM_FUNCTION(One, hcos, std::cos(float(x)))                                                                  \
    VERBATIM_FUNCTION(One, htanh, std::tanh(float(x)))                                                                \
    struct alignas(4) Two {                                                                                           \
        One x, y;                                                                                                     \
        Two() = default;                                                                                              \
        constexpr Two(One low, One high) : x(low), y(high) {}                                                         \
    };                                                                                                                \
    inline float2 verbatim_pair_values(Two v) { return {float(v.x), float(v.y)}; }                                    \
    inline float __low2float(Two v) { return v.x; }                                                                   \
    inline float __high2float(Two v) { return v.y; }                                                                  \
    VERBATIM_PAIR_OPERATOR(Two, +)                                                                                    \
    VERBATIM_PAIR_OPERATOR(Two, -)                                                                                    \
    VERBATIM_PAIR_OPERATOR(Two, *)                                                                                    \
    VERBATIM_PAIR_OPERATOR(Two, /)                                                                                    \
    VERBATIM_PAIR_OF_TWO(Two, __hadd2, __hadd)                                                                        \
    VERBATIM_PAIR_OF_TWO(Two, __hsub2, __hsub)                                                                        \
    VERBATIM_PAIR_OF_TWO(Two, __hmul2, __hmul)                                                                        \
    VERBATIM_PAIR_OF_TWO(Two, __h2div, __hdiv)                                                                        \
    VERBATIM_PAIR_OF_TWO(Two, __hmax2, __hmax)                                                                        \
    VERBATIM_PAIR_OF_TWO(Two, __hmin2, __hmin)                                                                        \
    VERBATIM_PAIR_FUNCTION(Two, __hneg2, __hneg)                                                                      \
    VERBATIM_PAIR_FUNCTION(Two, __habs2, __habs)                                                                      \
    VERBATIM_PAIR_FUNCTION(Two, h2exp, hexp)                                                                          \
    VERBATIM_PAIR_FUNCTION(Two, h2exp2, hexp2)                                                                        \
    VERBATIM_PAIR_FUNCTION(Two, h2log, hlog)                                                                          \
    VERBATIM_PAIR_FUNCTION(Two, h2sqrt, hsqrt)                                                                        \
    VERBATIM_PAIR_FUNCTION(Two, h2rsqrt, hrsqrt)                                                                      \
    VERBATIM_PAIR_FUNCTION(Two, h2rcp, hrcp)                                                                          \
    VERBATIM_PAIR_FUNCTION(Two, h2log2, hlog2)                                                                        \
    VERBATIM_PAIR_FUNCTION(Two, h2sin, hsin)                                                                          \
    VERBATIM_PAIR_FUNCTION(Two, h2cos, hcos)                                                                          \
    VERBATIM_PAIR_FUNCTION(Two, h2tanh, htanh)                                                                        \
    VERBATIM_PAIR_OF_TWO(Two, __hadd2_rn, __hadd)                                                                     \
    VERBATIM_PAIR_OF_TWO(Two, __hsub2_rn, __hsub)                                                                     \
    VERBATIM_PAIR_OF_TWO(Two, __hmul2_rn, __hmul)                                                                     \
    VERBATIM_PAIR_COMPARISON(One, Two, __heq)                                                                         \
    VERBATIM_PAIR_COMPARISON(One, Two, __hne)                                                                         \
    VERBATIM_PAIR_COMPARISON(One, Two, __hlt)                                                                         \
    VERBATIM_PAIR_COMPARISON(One, Two, __hle)                                                                         \
    VERBATIM_PAIR_COMPARISON(One, Two, __hgt)                                                                         \
    VERBATIM_PAIR_COMPARISON(One, Two, __hge)                                                                         \
    inline One __hfma_relu(One a, One b, One c) { return verbatim_relu(__hfma(a, b, c)); }                            \
    inline Two __hfma2_relu(Two a, Two b, Two c) { return {__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)}; } \
    inline Two __hfma2(Two a, Two b, Two c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }                \
    inline Two __lowhigh2highlow(Two v) { return {v.y, v.x}; }
VERBATIM_HALVES(__half, __half2)
VERBATIM_HALVES(__nv_bfloat16, __nv_bfloat162)
#undef VERBATIM_OPERATOR
#undef VERBATIM_COMPARISON
#undef VERBATIM_FUNCTION
#undef VERBATIM_PAIR_OPERATOR
#undef VERBATIM_PAIR_FUNCTION
#undef VERBATIM_PAIR_OF_TWO
#undef VERBATIM_PAIR_COMPARISON
#undef VERBATIM_HALVES
using half2 = __half2;
using nv_bfloat162 = __nv_bfloat162;
#define VERBATIM_BOTH(name, one)               \
    template <typename Two>                    \
    bool name(Two a, Two b) {                  \
        return one(a.x, b.x) && one(a.y, b.y); \
    }
VERBATIM_BOTH(__hbeq2, __heq)
VERBATIM_BOTH(__hbne2, __hne)
VERBATIM_BOTH(__hblt2, __hlt)
VERBATIM_BOTH(__hble2, __hle)
VERBATIM_BOTH(__hbgt2, __hgt)
VERBATIM_BOTH(__hbge2, __hge)
#undef VERBATIM_BOTH

// --- __half by name

inline float __half2float(__half x) { return x; }
inline __half __float2half(float x) { return x; }
inline __half __float2half_rn(float x) { return x; }
inline __half __double2half(double x) { return x; }
inline __half __int2half_rn(int x) { return x; }
inline __half __uint2half_rn(unsigned x) { return x; }
inline int __half2int_rn(__half x) { return __float2int_rn(x); }
inline int __half2int_rz(__half x) { return __float2int_rz(x); }
inline __half2 __half2half2(__half x) { return {x, x}; }
inline __half2 __halves2half2(__half low, __half high) { return {low, high}; }
inline __half2 make_half2(__half low, __half high) { return {low, high}; }
inline __half __low2half(__half2 v) { return v.x; }
inline __half __high2half(__half2 v) { return v.y; }
inline __half2 __low2half2(__half2 v) { return {v.x, v.x}; }
inline __half2 __high2half2(__half2 v) { return {v.y, v.y}; }
inline __half2 __lows2half2(__half2 a, __half2 b) { return {a.x, b.x}; }
inline __half2 __highs2half2(__half2 a, __half2 b) { return {a.y, b.y}; }
inline __half2 __float2half2_rn(float x) { return {__half(x), __half(x)}; }
inline __half2 __floats2half2_rn(float low, float high) { return {__half(low), __half(high)}; }
inline __half2 __float22half2_rn(float2 v) { return {__half(v.x), __half(v.y)}; }
inline float2 __half22float2(__half2 v) { return verbatim_pair_values(v); }
inline unsigned short __half_as_ushort(__half x) { return std::bit_cast<unsigned short>(x.value); }
inline short __half_as_short(__half x) { return std::bit_cast<short>(x.value); }
inline __half __ushort_as_half(unsigned short bits) {
    __half x;
    x.value = std::bit_cast<_Float16>(bits);
    return x;
}
inline __half __short_as_half(short bits) { return __ushort_as_half(static_cast<unsigned short>(bits)); }

// --- __nv_bfloat16 by name

inline float __bfloat162float(__nv_bfloat16 x) { return x; }
inline __nv_bfloat16 __float2bfloat16(float x) { return x; }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return x; }
inline __nv_bfloat16 __double2bfloat16(double x) { return verbatim_to_odd(x); }
inline __nv_bfloat16 __int2bfloat16_rn(int x) { return verbatim_to_odd(x); }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return {x, x}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 low, __nv_bfloat16 high) { return {low, high}; }
inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 low, __nv_bfloat16 high) { return {low, high}; }
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v) { return v.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v) { return v.y; }
inline __nv_bfloat162 __low2bfloat162(__nv_bfloat162 v) { return {v.x, v.x}; }
inline __nv_bfloat162 __high2bfloat162(__nv_bfloat162 v) { return {v.y, v.y}; }
inline __nv_bfloat162 __lows2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.x, b.x}; }
inline __nv_bfloat162 __highs2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.y, b.y}; }
inline int __bfloat162int_rn(__nv_bfloat16 x) { return __float2int_rn(x); }
inline int __bfloat162int_rz(__nv_bfloat16 x) { return __float2int_rz(x); }
inline __nv_bfloat162 __float2bfloat162_rn(float x) { return {__nv_bfloat16(x), __nv_bfloat16(x)}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float low, float high) { return {__nv_bfloat16(low), __nv_bfloat16(high)}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 v) { return {__nv_bfloat16(v.x), __nv_bfloat16(v.y)}; }
inline float2 __bfloat1622float2(__nv_bfloat162 v) { return verbatim_pair_values(v); }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
    __nv_bfloat16 x;
    x.bits = bits;
    return x;
}

// --- 8 bits

using __nv_fp8_storage_t = uint8_t;
using __nv_fp8x2_storage_t = uint16_t;
using __nv_fp8x4_storage_t = uint32_t;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t saturates, __nv_fp8_interpretation_t kind) {
    const float most = kind == __NV_E4M3 ? 448.0F : 57344.0F;
    if (saturates == __NV_SATFINITE && std::fabs(x) > most) x = std::copysign(most, x);
    return kind == __NV_E4M3 ? verbatim_float_to_e4m3(x) : verbatim_float_to_e5m2(x);
}
inline float verbatim_fp8_value(__nv_fp8_storage_t x, __nv_fp8_interpretation_t kind) {
    return kind == __NV_E4M3 ? verbatim_e4m3_to_float(x) : verbatim_e5m2_to_float(x);
}
inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 v, __nv_saturation_t saturates,
                                                     __nv_fp8_interpretation_t kind) {
    return static_cast<uint16_t>(__nv_cvt_float_to_fp8(v.x, saturates, kind) |
                                 __nv_cvt_float_to_fp8(v.y, saturates, kind) << 8);
}
inline __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(__half_raw x, __nv_saturation_t saturates,
                                                  __nv_fp8_interpretation_t kind) {
    return __nv_cvt_float_to_fp8(__ushort_as_half(x.x), saturates, kind);
}
inline __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16_raw x, __nv_saturation_t saturates,
                                                      __nv_fp8_interpretation_t kind) {
    return __nv_cvt_float_to_fp8(__ushort_as_bfloat16(x.x), saturates, kind);
}
// Each number of 8 bits is one of 16.
inline __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t x, __nv_fp8_interpretation_t kind) {
    return {__half_as_ushort(__half(verbatim_fp8_value(x, kind)))};
}
inline __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t v, __nv_fp8_interpretation_t kind) {
    return {__nv_cvt_fp8_to_halfraw(static_cast<uint8_t>(v & 0xFFU), kind).x,
            __nv_cvt_fp8_to_halfraw(static_cast<uint8_t>(v >> 8), kind).x};
}

#define VERBATIM_FP8(name, pair, four, kind)                                                               \
    struct name {                                                                                          \
        __nv_fp8_storage_t __x;                                                                            \
        name() = default;                                                                                  \
        explicit name(float x) : __x(__nv_cvt_float_to_fp8(x, __NV_SATFINITE, kind)) {}                    \
        explicit name(__half x) : name(float(x)) {}                                                        \
        explicit name(__nv_bfloat16 x) : name(float(x)) {}                                                 \
        explicit operator float() const { return verbatim_fp8_value(__x, kind); }                          \
        explicit operator __half() const { return __half(float(*this)); }                                  \
        explicit operator __nv_bfloat16() const { return __nv_bfloat16(float(*this)); }                    \
    };                                                                                                     \
    struct pair {                                                                                          \
        __nv_fp8x2_storage_t __x;                                                                          \
        pair() = default;                                                                                  \
        explicit pair(float2 v) : __x(__nv_cvt_float2_to_fp8x2(v, __NV_SATFINITE, kind)) {}                \
        explicit pair(__half2 v) : pair(verbatim_pair_values(v)) {}                                        \
        explicit pair(__nv_bfloat162 v) : pair(verbatim_pair_values(v)) {}                                 \
        explicit operator float2() const {                                                                 \
            return {verbatim_fp8_value(static_cast<uint8_t>(__x & 0xFFU), kind),                           \
                    verbatim_fp8_value(static_cast<uint8_t>(__x >> 8), kind)};                             \
        }                                                                                                  \
        explicit operator __half2() const { return __float22half2_rn(float2(*this)); }                     \
    };                                                                                                     \
    struct four {                                                                                          \
        __nv_fp8x4_storage_t __x;                                                                          \
        four() = default;                                                                                  \
        explicit four(float4 v)                                                                            \
            : __x(pair(float2{v.x, v.y}).__x | static_cast<uint32_t>(pair(float2{v.z, v.w}).__x) << 16) {} \
        explicit operator float4() const {                                                                 \
            pair low, high;                                                                                \
            low.__x = static_cast<uint16_t>(__x), high.__x = static_cast<uint16_t>(__x >> 16);             \
            const float2 first = float2(low), last = float2(high);                                         \
            return {first.x, first.y, last.x, last.y};                                                     \
        }                                                                                                  \
    };
VERBATIM_FP8(__nv_fp8_e4m3, __nv_fp8x2_e4m3, __nv_fp8x4_e4m3, __NV_E4M3)
VERBATIM_FP8(__nv_fp8_e5m2, __nv_fp8x2_e5m2, __nv_fp8x4_e5m2, __NV_E5M2)
#undef VERBATIM_FP8
