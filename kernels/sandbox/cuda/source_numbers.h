// kernels/sandbox/cuda/source_numbers.h: owns the rarer functions of numbers for CUDA source on the emulator
// (kernels/sandbox/cuda/source.h includes it): conversions with a rounding, halves that are rounded to integers,
// saturated or compared to masks, integers by halves of 64 bits.
#pragma once

#include "kernels/sandbox/cuda/source_halves.h"

// --- conversions towards zero, down and up: of what binary64 holds exactly

template <typename To>
To verbatim_next(To nearest, double exact, bool is_up) {
    const auto back = static_cast<double>(nearest);
    if (exact != exact || back == exact || (back > exact) == is_up) return nearest;
    return std::nextafter(nearest, is_up ? std::numeric_limits<To>::infinity() : -std::numeric_limits<To>::infinity());
}
#define VERBATIM_ROUNDED(name, From)                                                                            \
    inline float __##name##2float_rd(From x) { return verbatim_next(static_cast<float>(x), double(x), false); } \
    inline float __##name##2float_ru(From x) { return verbatim_next(static_cast<float>(x), double(x), true); }  \
    inline float __##name##2float_rz(From x) { return x < 0 ? __##name##2float_ru(x) : __##name##2float_rd(x); }
VERBATIM_ROUNDED(int, int)
VERBATIM_ROUNDED(uint, unsigned)
VERBATIM_ROUNDED(double, double)
#undef VERBATIM_ROUNDED
inline int __double2int_rz(double x) { return verbatim_to_integer<int>(std::trunc(x)); }
inline int __double2int_rd(double x) { return verbatim_to_integer<int>(std::floor(x)); }
inline int __double2int_ru(double x) { return verbatim_to_integer<int>(std::ceil(x)); }
inline long long __double2ll_rz(double x) { return verbatim_to_integer<long long>(std::trunc(x)); }
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }
inline double __hiloint2double(int high, int low) {
    return std::bit_cast<double>(uint64_t{static_cast<unsigned>(high)} << 32 | static_cast<unsigned>(low));
}
inline int __double2hiint(double x) { return static_cast<int>(std::bit_cast<uint64_t>(x) >> 32); }
inline int __double2loint(double x) { return static_cast<int>(std::bit_cast<uint64_t>(x)); }

// --- integers

inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline long long __mul64hi(long long a, long long b) {
    return static_cast<long long>(static_cast<__int128>(a) * b >> 64);
}
inline unsigned long long __brevll(unsigned long long x) {
    return static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32 |
           __brev(static_cast<unsigned>(x >> 32));
}
// By 32 at most.
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned by) {
    return by >= 32 ? low : __funnelshift_l(low, high, by);
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned by) {
    return by >= 32 ? high : __funnelshift_r(low, high, by);
}
inline unsigned umin(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned umax(unsigned a, unsigned b) { return a < b ? b : a; }
inline long long llmin(long long a, long long b) { return a < b ? a : b; }
inline long long llmax(long long a, long long b) { return a < b ? b : a; }
inline unsigned long long ullmin(unsigned long long a, unsigned long long b) { return a < b ? a : b; }
inline unsigned long long ullmax(unsigned long long a, unsigned long long b) { return a < b ? b : a; }

// --- numbers of 16 bits

// A NaN is kept: __hmax has the other number.
template <typename One>
One verbatim_or_nan(One a, One b, One result) {
    return std::isnan(float(a)) || std::isnan(float(b)) ? One(NAN) : result;
}
template <typename One>
One verbatim_saturated(One x) {
    return One(float(x) > 0.0F ? (float(x) < 1.0F ? float(x) : 1.0F) : 0.0F);
}
#define VERBATIM_MORE_OF_ONE(One, Two, name, value)  \
    inline One h##name(One x) { return One(value); } \
    inline Two h2##name(Two v) { return {h##name(v.x), h##name(v.y)}; }
#define VERBATIM_MASK(Two, name, one) \
    inline unsigned name(Two a, Two b) { return (one(a.x, b.x) ? 0xFFFFU : 0U) | (one(a.y, b.y) ? 0xFFFF0000U : 0U); }
#define VERBATIM_MORE_HALVES(One, Two)                                                                             \
    VERBATIM_MORE_OF_ONE(One, Two, floor, std::floor(float(x)))                                                    \
    VERBATIM_MORE_OF_ONE(One, Two, ceil, std::ceil(float(x)))                                                      \
    VERBATIM_MORE_OF_ONE(One, Two, rint, std::nearbyint(float(x)))                                                 \
    VERBATIM_MORE_OF_ONE(One, Two, trunc, std::trunc(float(x)))                                                    \
    VERBATIM_MORE_OF_ONE(One, Two, exp10, __exp10f(float(x)))                                                      \
    VERBATIM_MORE_OF_ONE(One, Two, log10, __log10f(float(x)))                                                      \
    inline One __hmax_nan(One a, One b) { return verbatim_or_nan(a, b, __hmax(a, b)); }                            \
    inline One __hmin_nan(One a, One b) { return verbatim_or_nan(a, b, __hmin(a, b)); }                            \
    inline One __hadd_sat(One a, One b) { return verbatim_saturated(__hadd(a, b)); }                               \
    inline One __hsub_sat(One a, One b) { return verbatim_saturated(__hsub(a, b)); }                               \
    inline One __hmul_sat(One a, One b) { return verbatim_saturated(__hmul(a, b)); }                               \
    inline One __hfma_sat(One a, One b, One c) { return verbatim_saturated(__hfma(a, b, c)); }                     \
    inline Two __hmax2_nan(Two a, Two b) { return {__hmax_nan(a.x, b.x), __hmax_nan(a.y, b.y)}; }                  \
    inline Two __hmin2_nan(Two a, Two b) { return {__hmin_nan(a.x, b.x), __hmin_nan(a.y, b.y)}; }                  \
    inline Two __hadd2_sat(Two a, Two b) { return {__hadd_sat(a.x, b.x), __hadd_sat(a.y, b.y)}; }                  \
    inline Two __hmul2_sat(Two a, Two b) { return {__hmul_sat(a.x, b.x), __hmul_sat(a.y, b.y)}; }                  \
    inline Two __hfma2_sat(Two a, Two b, Two c) { return {__hfma_sat(a.x, b.x, c.x), __hfma_sat(a.y, b.y, c.y)}; } \
    inline Two operator-(Two v) { return {-v.x, -v.y}; }                                                           \
    inline bool operator==(Two a, Two b) { return a.x == b.x && a.y == b.y; }                                      \
    inline bool operator!=(Two a, Two b) { return a.x != b.x && a.y != b.y; }                                      \
    inline One& operator++(One& x) { return x = One(float(x) + 1.0F); }                                            \
    inline One& operator--(One& x) { return x = One(float(x) - 1.0F); }                                            \
    VERBATIM_MASK(Two, __heq2_mask, __heq)                                                                         \
    VERBATIM_MASK(Two, __hne2_mask, __hne)                                                                         \
    VERBATIM_MASK(Two, __hlt2_mask, __hlt)                                                                         \
    VERBATIM_MASK(Two, __hle2_mask, __hle)                                                                         \
    VERBATIM_MASK(Two, __hgt2_mask, __hgt)                                                                         \
    VERBATIM_MASK(Two, __hge2_mask, __hge)
VERBATIM_MORE_HALVES(__half, __half2)
VERBATIM_MORE_HALVES(__nv_bfloat16, __nv_bfloat162)
#undef VERBATIM_MORE_HALVES
#undef VERBATIM_MORE_OF_ONE
#undef VERBATIM_MASK

#define VERBATIM_INTEGERS_OF(One, name, by_name)                                                             \
    inline short __##name##2short_rn(One x) { return verbatim_to_integer<short>(std::nearbyint(float(x))); } \
    inline unsigned short __##name##2ushort_rn(One x) {                                                      \
        return verbatim_to_integer<unsigned short>(std::nearbyint(float(x)));                                \
    }                                                                                                        \
    inline unsigned __##name##2uint_rn(One x) { return __float2uint_rn(x); }                                 \
    inline unsigned __##name##2uint_rz(One x) { return __float2uint_rz(x); }                                 \
    inline long long __##name##2ll_rn(One x) { return __float2ll_rn(x); }                                    \
    inline One __short2##by_name##_rn(short x) { return float(x); }                                          \
    inline One __ushort2##by_name##_rn(unsigned short x) { return float(x); }
VERBATIM_INTEGERS_OF(__half, half, half)
VERBATIM_INTEGERS_OF(__nv_bfloat16, bfloat16, bfloat16)
#undef VERBATIM_INTEGERS_OF
inline __nv_bfloat16 __uint2bfloat16_rn(unsigned x) { return verbatim_to_odd(x); }
inline short __bfloat16_as_short(__nv_bfloat16 x) { return static_cast<short>(x.bits); }
inline __nv_bfloat16 __short_as_bfloat16(short bits) { return __ushort_as_bfloat16(static_cast<unsigned short>(bits)); }
#define CUDART_ZERO_FP16 __ushort_as_half(0x0000U)
#define CUDART_ONE_FP16 __ushort_as_half(0x3C00U)
#define CUDART_INF_FP16 __ushort_as_half(0x7C00U)
#define CUDART_NAN_FP16 __ushort_as_half(0x7FFFU)
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half(0x7BFFU)
#define CUDART_ZERO_BF16 __ushort_as_bfloat16(0x0000U)
#define CUDART_ONE_BF16 __ushort_as_bfloat16(0x3F80U)
#define CUDART_INF_BF16 __ushort_as_bfloat16(0x7F80U)
#define CUDART_NAN_BF16 __ushort_as_bfloat16(0x7FFFU)
#define CUDART_MAX_NORMAL_BF16 __ushort_as_bfloat16(0x7F7FU)

inline __nv_fp8x2_storage_t __nv_cvt_halfraw2_to_fp8x2(__half2 v, __nv_saturation_t saturates,
                                                       __nv_fp8_interpretation_t kind) {
    return __nv_cvt_float2_to_fp8x2(verbatim_pair_values(v), saturates, kind);
}
inline __nv_fp8x2_storage_t __nv_cvt_bfloat16raw2_to_fp8x2(__nv_bfloat162 v, __nv_saturation_t saturates,
                                                           __nv_fp8_interpretation_t kind) {
    return __nv_cvt_float2_to_fp8x2(verbatim_pair_values(v), saturates, kind);
}
inline __nv_fp8x2_storage_t __nv_cvt_halfraw2_to_fp8x2(__half2_raw v, __nv_saturation_t saturates,
                                                       __nv_fp8_interpretation_t kind) {
    return __nv_cvt_float2_to_fp8x2({float(__ushort_as_half(v.x)), float(__ushort_as_half(v.y))}, saturates, kind);
}
