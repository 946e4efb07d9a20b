// kernels/sandbox/cuda/source_values.h: owns CUDA's vectors, mathematics and bits for CUDA source on the emulator
// (kernels/sandbox/cuda/source.h includes it).
//
//   V1  vectors of 1 to 4 with CUDA's alignment, and make_*
//   V2  a function of binary32 is the host's, or binary64's rounded once; min and max of floats ignore a NaN, as CUDA's
#pragma once

#include "kernels/sandbox/cuda/source.h"

#define VERBATIM_VECTORS(T, name, align2, align4)                 \
    struct name##1 {                                              \
        T x;                                                      \
    };                                                            \
    struct alignas(align2) name##2 {                              \
        T x, y;                                                   \
    };                                                            \
    struct alignas(align4) name##4 {                              \
        T x, y, z, w;                                             \
    };                                                            \
    constexpr name##1 make_##name##1(T x) { return {x}; }         \
    constexpr name##2 make_##name##2(T x, T y) { return {x, y}; } \
    constexpr name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
#define VERBATIM_THREE(T, name) \
    struct name##3 {            \
        T x, y, z;              \
    };                          \
    constexpr name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }
VERBATIM_VECTORS(signed char, char, 2, 4)
VERBATIM_VECTORS(unsigned char, uchar, 2, 4)
VERBATIM_VECTORS(short, short, 4, 8)
VERBATIM_VECTORS(unsigned short, ushort, 4, 8)
VERBATIM_VECTORS(int, int, 8, 16)
VERBATIM_VECTORS(unsigned, uint, 8, 16)
VERBATIM_VECTORS(long long, longlong, 16, 16)
VERBATIM_VECTORS(unsigned long long, ulonglong, 16, 16)
VERBATIM_VECTORS(float, float, 8, 16)
VERBATIM_VECTORS(double, double, 16, 16)
VERBATIM_THREE(signed char, char)
VERBATIM_THREE(unsigned char, uchar)
VERBATIM_THREE(short, short)
VERBATIM_THREE(unsigned short, ushort)
VERBATIM_THREE(int, int)
VERBATIM_THREE(float, float)
VERBATIM_THREE(double, double)
#undef VERBATIM_VECTORS
#undef VERBATIM_THREE
constexpr uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }

// --- mathematics

// The functions without _rn, _rz, ... take part in no contraction here; the ones with __ are as exact as the others.
inline float rsqrtf(float x) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float rcbrtf(float x) { return static_cast<float>(1.0 / std::cbrt(static_cast<double>(x))); }
inline float __frsqrt_rn(float x) { return rsqrtf(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __exp10f(float x) { return static_cast<float>(std::pow(10.0, static_cast<double>(x))); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __log10f(float x) { return std::log10(x); }
inline float __powf(float x, float y) { return std::pow(x, y); }
inline float __sinf(float x) { return std::sin(x); }
inline float __cosf(float x) { return std::cos(x); }
inline float __tanf(float x) { return std::tan(x); }
inline float __tanhf(float x) { return std::tanh(x); }
inline void __sincosf(float x, float* sine, float* cosine) {
    *sine = std::sin(x);
    *cosine = std::cos(x);
}
inline float sinpif(float x) {
    return static_cast<float>(std::sin(M_PI * std::remainder(static_cast<double>(x), 2.0)));
}
inline float cospif(float x) {
    return static_cast<float>(std::cos(M_PI * std::remainder(static_cast<double>(x), 2.0)));
}
inline float normcdff(float x) { return static_cast<float>(0.5 * std::erfc(-static_cast<double>(x) * M_SQRT1_2)); }
inline float fdividef(float a, float b) { return a / b; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0F / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline float __saturatef(float x) { return x > 0.0F ? (x < 1.0F ? x : 1.0F) : 0.0F; }

// CUDA has them without std::, and not in constant expressions.
template <typename A, typename B>
    requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>)
auto max(A a, B b) {
    using T = std::common_type_t<A, B>;
    const T x = static_cast<T>(a), y = static_cast<T>(b);
    return x != x ? y : x < y ? y : x;
}
template <typename A, typename B>
    requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>)
auto min(A a, B b) {
    using T = std::common_type_t<A, B>;
    const T x = static_cast<T>(a), y = static_cast<T>(b);
    return x != x ? y : y < x ? y : x;
}

// Each element of a vector is added atomically.
inline float2 atomicAdd(float2* p, float2 value) {
    return verbatim_atomic(p, [value](float2 there) { return float2{there.x + value.x, there.y + value.y}; });
}
inline float4 atomicAdd(float4* p, float4 value) {
    return verbatim_atomic(p, [value](float4 there) {
        return float4{there.x + value.x, there.y + value.y, there.z + value.z, there.w + value.w};
    });
}

// --- bits and integers

inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (int i = 0; i < 32; ++i) reversed |= (x >> i & 1U) << (31 - i);
    return reversed;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(uint64_t{a} * b >> 32); }
inline int __mulhi(int a, int b) { return static_cast<int>(int64_t{a} * b >> 32); }
inline int __mul24(int a, int b) { return a * b; }
inline unsigned __umul24(unsigned a, unsigned b) { return a * b; }
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
    return static_cast<unsigned>((uint64_t{high} << 32 | low) << (by & 31U) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return static_cast<unsigned>((uint64_t{high} << 32 | low) >> (by & 31U));
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    const uint64_t both = uint64_t{b} << 32 | a;
    unsigned word = 0;
    for (int i = 0; i < 4; ++i)
        word |= static_cast<unsigned>(both >> (selector >> (4 * i) & 7U) * 8 & 0xFFU) << (8 * i);
    return word;
}
// Averages; the rounded ones upwards.
inline int __hadd(int a, int b) { return static_cast<int>((int64_t{a} + b) >> 1); }
inline int __rhadd(int a, int b) { return static_cast<int>((int64_t{a} + b + 1) >> 1); }
inline unsigned __uhadd(unsigned a, unsigned b) { return static_cast<unsigned>((uint64_t{a} + b) >> 1); }
inline unsigned __urhadd(unsigned a, unsigned b) { return static_cast<unsigned>((uint64_t{a} + b + 1) >> 1); }
inline unsigned __sad(int a, int b, unsigned sum) {
    return sum + static_cast<unsigned>(a < b ? int64_t{b} - a : int64_t{a} - b);
}
inline unsigned __usad(unsigned a, unsigned b, unsigned sum) { return sum + (a < b ? b - a : a - b); }

// --- conversions: to nearest even, towards zero, down and up; a float beyond
// the integers becomes the nearest one

template <typename To>
To verbatim_to_integer(double whole) {
    if (whole != whole) return 0;
    if (whole <= static_cast<double>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    if (whole >= static_cast<double>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
    return static_cast<To>(whole);
}
#define VERBATIM_CONVERSIONS(To, name)                                                              \
    inline To __float2##name##_rn(float x) { return verbatim_to_integer<To>(std::nearbyint(x)); }   \
    inline To __float2##name##_rz(float x) { return verbatim_to_integer<To>(std::trunc(x)); }       \
    inline To __float2##name##_rd(float x) { return verbatim_to_integer<To>(std::floor(x)); }       \
    inline To __float2##name##_ru(float x) { return verbatim_to_integer<To>(std::ceil(x)); }        \
    inline To __double2##name##_rn(double x) { return verbatim_to_integer<To>(std::nearbyint(x)); } \
    inline float __##name##2float_rn(To x) { return static_cast<float>(x); }
VERBATIM_CONVERSIONS(int, int)
VERBATIM_CONVERSIONS(unsigned, uint)
VERBATIM_CONVERSIONS(long long, ll)
VERBATIM_CONVERSIONS(unsigned long long, ull)
#undef VERBATIM_CONVERSIONS
inline float __double2float_rn(double x) { return static_cast<float>(x); }
