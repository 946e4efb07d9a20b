// kernels/sandbox/cuda/source_dpx.h: owns Hopper's integer instructions of dynamic programming (DPX) for CUDA source on
// the emulator (kernels/sandbox/cuda/source.h includes it): a sum or two numbers, and the greater or the lesser of
// three.
//
//   X1  _s32 and _u32 are of a number, _s16x2 and _u16x2 of two in a word; sums keep their low bits
//   X2  _relu: no result is below 0; __vib*: also whether the first number is the result, equal ones included
#pragma once

#include "kernels/sandbox/cuda/source_words.h"

// One function of each part of three words.
template <typename Part, typename Function>
unsigned verbatim_by_parts_of_three(unsigned a, unsigned b, unsigned c, const Function& function) {
    unsigned word = 0;
    for (unsigned at = 0; at < 32; at += 8 * sizeof(Part)) {
        const Part part = function(static_cast<Part>(a >> at), static_cast<Part>(b >> at), static_cast<Part>(c >> at));
        word |= static_cast<unsigned>(static_cast<std::make_unsigned_t<Part>>(part)) << at;
    }
    return word;
}
template <typename Part>
Part verbatim_wrapped_sum(Part a, Part b) {
    using Bits = std::make_unsigned_t<Part>;
    return static_cast<Part>(static_cast<Bits>(static_cast<Bits>(a) + static_cast<Bits>(b)));
}
#define VERBATIM_DPX_OF(name, Word, Part, result)                                         \
    inline Word name(Word a, Word b, Word c) {                                            \
        return static_cast<Word>(verbatim_by_parts_of_three<Part>(                        \
            static_cast<unsigned>(a), static_cast<unsigned>(b), static_cast<unsigned>(c), \
            [](Part x, Part y, Part z) -> Part { return result; }));                      \
    }
#define VERBATIM_DPX(name, result)                                       \
    VERBATIM_DPX_OF(name##_s32, int, int, result)                        \
    VERBATIM_DPX_OF(name##_u32, unsigned, unsigned, result)              \
    VERBATIM_DPX_OF(name##_s16x2, unsigned, short, result)               \
    VERBATIM_DPX_OF(name##_u16x2, unsigned, unsigned short, result)      \
    VERBATIM_DPX_OF(name##_s32_relu, int, int, std::max<int>(result, 0)) \
    VERBATIM_DPX_OF(name##_s16x2_relu, unsigned, short, std::max<short>(result, 0))
VERBATIM_DPX(__vimax3, std::max(std::max(x, y), z))
VERBATIM_DPX(__vimin3, std::min(std::min(x, y), z))
VERBATIM_DPX(__viaddmax, std::max(verbatim_wrapped_sum(x, y), z))
VERBATIM_DPX(__viaddmin, std::min(verbatim_wrapped_sum(x, y), z))
#undef VERBATIM_DPX
#undef VERBATIM_DPX_OF
inline int __vimax_s32_relu(int a, int b) { return __vimax3_s32(a, b, 0); }
inline int __vimin_s32_relu(int a, int b) { return __vimin3_s32_relu(a, b, b); }
inline unsigned __vimax_s16x2_relu(unsigned a, unsigned b) { return __vimax3_s16x2(a, b, 0); }
inline unsigned __vimin_s16x2_relu(unsigned a, unsigned b) { return __vimin3_s16x2_relu(a, b, b); }

#define VERBATIM_DPX(name, three, comparison)                                               \
    inline int name##_s32(int a, int b, bool* is_first) {                                   \
        *is_first = a comparison b;                                                         \
        return three##_s32(a, b, b);                                                        \
    }                                                                                       \
    inline unsigned name##_u32(unsigned a, unsigned b, bool* is_first) {                    \
        *is_first = a comparison b;                                                         \
        return three##_u32(a, b, b);                                                        \
    }                                                                                       \
    inline unsigned name##_s16x2(unsigned a, unsigned b, bool* is_high, bool* is_low) {     \
        *is_high = static_cast<short>(a >> 16) comparison static_cast<short>(b >> 16);      \
        *is_low = static_cast<short>(a) comparison static_cast<short>(b);                   \
        return three##_s16x2(a, b, b);                                                      \
    }                                                                                       \
    inline unsigned name##_u16x2(unsigned a, unsigned b, bool* is_high, bool* is_low) {     \
        *is_high = a >> 16 comparison b >> 16;                                              \
        *is_low = static_cast<unsigned short>(a) comparison static_cast<unsigned short>(b); \
        return three##_u16x2(a, b, b);                                                      \
    }
VERBATIM_DPX(__vibmax, __vimax3, >=)
VERBATIM_DPX(__vibmin, __vimin3, <=)
#undef VERBATIM_DPX
