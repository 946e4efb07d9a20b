// kernels/simt/ptx_values.h: owns the meaning of a PTX register's bits: a type's value, and its conversions. Float
// operations are rounded to nearest even and keep subnormals: .ftz and .approx are computed as without them.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace verbatim::simt {

inline int64_t ptx_signed(uint64_t bits, int num_bits) {
    return num_bits == 64 ? static_cast<int64_t>(bits)
                          : static_cast<int64_t>(bits << (64 - num_bits)) >> (64 - num_bits);
}
inline uint64_t ptx_cut(uint64_t bits, int num_bits) { return num_bits == 64 ? bits : bits & ((1ULL << num_bits) - 1); }
// "u32", "b16x2", "s8": 32, 16, 8.
inline int ptx_bits(std::string_view type) {
    int bits = 0;
    for (const char c : type) {
        if (c == 'x') break;
        if (c >= '0' && c <= '9') bits = bits * 10 + (c - '0');
    }
    return type == "bf16" || type == "bf16x2" ? 16 : bits;
}
inline float ptx_float(uint64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }
inline uint64_t ptx_of(float value) { return std::bit_cast<uint32_t>(value); }
inline float ptx_half(uint64_t bits) {
    return static_cast<float>(std::bit_cast<_Float16>(static_cast<uint16_t>(bits)));
}
inline uint64_t ptx_of_half(float value) { return std::bit_cast<uint16_t>(static_cast<_Float16>(value)); }
inline float ptx_bf16(uint64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
// As __float2bfloat16: nothing below 2^-56 is dropped.
inline uint64_t ptx_of_bf16(float value) {
    const auto whole = std::bit_cast<uint32_t>(value);
    const bool is_nan = (whole & 0x7FFFFFFFU) > 0x7F800000U;
    return is_nan ? 0x7FFFU : ((whole + 0x7FFFU + (whole >> 16 & 1U)) >> 16 & 0xFFFFU);
}
// Of "f32", "f16" or "bf16".
inline float ptx_to_float(std::string_view type, uint64_t bits) {
    return type == "f16" ? ptx_half(bits) : type == "bf16" ? ptx_bf16(bits) : ptx_float(bits);
}
inline uint64_t ptx_from_float(std::string_view type, float value) {
    return type == "f16" ? ptx_of_half(value) : type == "bf16" ? ptx_of_bf16(value) : ptx_of(value);
}

}  // namespace verbatim::simt
