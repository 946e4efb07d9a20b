// kernels/sandbox/cuda/source_words.h: owns CUDA's integer intrinsics of several numbers in a word for CUDA source on
// the emulator (kernels/sandbox/cuda/source.h includes it): the video instructions and the short dot products.
//
//   W1  __vNAME2 is of two numbers of 16 bits, __vNAME4 of four of 8 bits; s: signed, u: unsigned; each result keeps
//       its low bits, or with ss and us the nearest number of its kind
//   W2  __vcmp* gives all ones or zeros, __vset* 1 or 0; sums of differences add to one number
#pragma once

#include "kernels/sandbox/cuda/source.h"

// One function of each part of two words.
template <typename Part, typename Function>
unsigned verbatim_by_parts(unsigned a, unsigned b, const Function& function) {
    unsigned word = 0;
    for (unsigned at = 0; at < 32; at += 8 * sizeof(Part)) {
        const int result = function(static_cast<Part>(a >> at), static_cast<Part>(b >> at));
        word |= static_cast<unsigned>(static_cast<std::make_unsigned_t<Part>>(result)) << at;
    }
    return word;
}
template <typename Part>
int verbatim_nearest(int x) {
    using Limits = std::numeric_limits<Part>;
    return std::clamp<int>(x, Limits::min(), Limits::max());
}
#define VERBATIM_PARTS(name, Part, result)                                                \
    inline unsigned name(unsigned a, unsigned b) {                                        \
        using T [[maybe_unused]] = Part;                                                  \
        return verbatim_by_parts<Part>(a, b, [](int x, int y) -> int { return result; }); \
    }
#define VERBATIM_PARTS_OF_ONE(name, Part, result)                                        \
    inline unsigned name(unsigned a) {                                                   \
        using T [[maybe_unused]] = Part;                                                 \
        return verbatim_by_parts<Part>(a, 0U, [](int x, int) -> int { return result; }); \
    }
#define VERBATIM_SIGNED(name, result)             \
    VERBATIM_PARTS(name##2, signed short, result) \
    VERBATIM_PARTS(name##4, signed char, result)
#define VERBATIM_UNSIGNED(name, result)             \
    VERBATIM_PARTS(name##2, unsigned short, result) \
    VERBATIM_PARTS(name##4, unsigned char, result)
#define VERBATIM_SIGNED_OF_ONE(name, result)             \
    VERBATIM_PARTS_OF_ONE(name##2, signed short, result) \
    VERBATIM_PARTS_OF_ONE(name##4, signed char, result)
VERBATIM_UNSIGNED(__vadd, x + y)
VERBATIM_SIGNED(__vaddss, verbatim_nearest<T>(x + y))
VERBATIM_UNSIGNED(__vaddus, verbatim_nearest<T>(x + y))
VERBATIM_UNSIGNED(__vsub, x - y)
VERBATIM_SIGNED(__vsubss, verbatim_nearest<T>(x - y))
VERBATIM_UNSIGNED(__vsubus, verbatim_nearest<T>(x - y))
VERBATIM_SIGNED(__vabsdiffs, x < y ? y - x : x - y)
VERBATIM_UNSIGNED(__vabsdiffu, x < y ? y - x : x - y)
VERBATIM_SIGNED(__vmaxs, x < y ? y : x)
VERBATIM_UNSIGNED(__vmaxu, x < y ? y : x)
VERBATIM_SIGNED(__vmins, x < y ? x : y)
VERBATIM_UNSIGNED(__vminu, x < y ? x : y)
// Rounded: halves away from zero.
VERBATIM_SIGNED(__vavgs, x + y < 0 ? (x + y) >> 1 : (x + y + 1) >> 1)
VERBATIM_UNSIGNED(__vavgu, (x + y + 1) >> 1)
VERBATIM_UNSIGNED(__vhaddu, (x + y) >> 1)
VERBATIM_SIGNED_OF_ONE(__vabs, x < 0 ? -x : x)
VERBATIM_SIGNED_OF_ONE(__vabsss, verbatim_nearest<T>(x < 0 ? -x : x))
VERBATIM_SIGNED_OF_ONE(__vneg, -x)
VERBATIM_SIGNED_OF_ONE(__vnegss, verbatim_nearest<T>(-x))
#define VERBATIM_COMPARISONS(kind, yes)              \
    VERBATIM_UNSIGNED(kind##eq, x == y ? (yes) : 0)  \
    VERBATIM_UNSIGNED(kind##ne, x != y ? (yes) : 0)  \
    VERBATIM_SIGNED(kind##ges, x >= y ? (yes) : 0)   \
    VERBATIM_UNSIGNED(kind##geu, x >= y ? (yes) : 0) \
    VERBATIM_SIGNED(kind##gts, x > y ? (yes) : 0)    \
    VERBATIM_UNSIGNED(kind##gtu, x > y ? (yes) : 0)  \
    VERBATIM_SIGNED(kind##les, x <= y ? (yes) : 0)   \
    VERBATIM_UNSIGNED(kind##leu, x <= y ? (yes) : 0) \
    VERBATIM_SIGNED(kind##lts, x < y ? (yes) : 0)    \
    VERBATIM_UNSIGNED(kind##ltu, x < y ? (yes) : 0)
VERBATIM_COMPARISONS(__vcmp, -1)
VERBATIM_COMPARISONS(__vset, 1)
#undef VERBATIM_COMPARISONS
#undef VERBATIM_SIGNED_OF_ONE
#undef VERBATIM_UNSIGNED
#undef VERBATIM_SIGNED
#undef VERBATIM_PARTS_OF_ONE
#undef VERBATIM_PARTS

inline unsigned __vsadu4(unsigned a, unsigned b) {
    unsigned sum = 0;
    for (unsigned differences = __vabsdiffu4(a, b); differences != 0; differences >>= 8) sum += differences & 0xFFU;
    return sum;
}
inline unsigned __vsads4(unsigned a, unsigned b) { return __vsadu4(a ^ 0x80808080U, b ^ 0x80808080U); }
inline unsigned __vsadu2(unsigned a, unsigned b) {
    const unsigned differences = __vabsdiffu2(a, b);
    return (differences & 0xFFFFU) + (differences >> 16);
}
inline unsigned __vsads2(unsigned a, unsigned b) { return __vsadu2(a ^ 0x80008000U, b ^ 0x80008000U); }

// --- dot products: of four bytes, and of two numbers of 16 bits with the low or the high two bytes

// Sums keep 32 bits.
template <typename Of16, typename Of8>
unsigned verbatim_dp2a(unsigned a, unsigned b, unsigned sum) {
    for (unsigned i = 0; i < 2; ++i)
        sum += static_cast<unsigned>(static_cast<Of16>(a >> (16 * i)) * static_cast<Of8>(b >> (8 * i)));
    return sum;
}
template <typename Of8>
unsigned verbatim_dp4a(unsigned a, unsigned b, unsigned sum) {
    for (unsigned i = 0; i < 32; i += 8)
        sum += static_cast<unsigned>(static_cast<Of8>(a >> i) * static_cast<Of8>(b >> i));
    return sum;
}
inline int __dp4a(int a, int b, int sum) { return static_cast<int>(verbatim_dp4a<signed char>(a, b, sum)); }
inline unsigned __dp4a(unsigned a, unsigned b, unsigned sum) { return verbatim_dp4a<unsigned char>(a, b, sum); }
inline int __dp4a(char4 a, char4 b, int sum) { return __dp4a(std::bit_cast<int>(a), std::bit_cast<int>(b), sum); }
inline unsigned __dp4a(uchar4 a, uchar4 b, unsigned sum) {
    return __dp4a(std::bit_cast<unsigned>(a), std::bit_cast<unsigned>(b), sum);
}
#define VERBATIM_DP2A(name, by)                                                                                      \
    inline int name(int a, int b, int sum) {                                                                         \
        return static_cast<int>(verbatim_dp2a<signed short, signed char>(a, static_cast<unsigned>(b) >> (by), sum)); \
    }                                                                                                                \
    inline unsigned name(unsigned a, unsigned b, unsigned sum) {                                                     \
        return verbatim_dp2a<unsigned short, unsigned char>(a, b >> (by), sum);                                      \
    }                                                                                                                \
    inline int name(short2 a, char4 b, int sum) { return name(std::bit_cast<int>(a), std::bit_cast<int>(b), sum); }  \
    inline unsigned name(ushort2 a, uchar4 b, unsigned sum) {                                                        \
        return name(std::bit_cast<unsigned>(a), std::bit_cast<unsigned>(b), sum);                                    \
    }
VERBATIM_DP2A(__dp2a_lo, 0)
VERBATIM_DP2A(__dp2a_hi, 16)
#undef VERBATIM_DP2A
