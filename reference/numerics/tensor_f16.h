// reference/numerics/tensor_f16.h: tensor_group (tensor_sm90.h) for binary16 inputs: the same terms, alignment and
// cuts, with products of two significands of 11 bits (MMA-Sim, arXiv 2511.10909). No profile uses it; a kernel of a
// user's may.
#pragma once

#include <cstdint>

#include "reference/numerics/tensor_sm90.h"

namespace verbatim::reference {

inline TensorTerm tensor_product_f16(uint16_t a, uint16_t b) {
    if ((a & 0x7FFF) == 0 || (b & 0x7FFF) == 0) return {};
    const int32_t a_field = (a >> 10) & 0x1F;
    const int32_t b_field = (b >> 10) & 0x1F;
    const int64_t x = (a & 0x3FF) | (a_field == 0 ? 0 : 0x400);
    const int64_t y = (b & 0x3FF) | (b_field == 0 ? 0 : 0x400);
    const int32_t exponent = (a_field == 0 ? 1 : a_field) + (b_field == 0 ? 1 : b_field) - 30;
    return {((a ^ b) & 0x8000) != 0, exponent, (x * y) << (kTensorFractionBits - 20)};  // 20 fraction bits, below 4
}

// A bf16 of the same sign and kind: zero, finite, infinite or NaN.
inline uint16_t tensor_kind_f16(uint16_t x) {
    const auto sign = static_cast<uint16_t>(x & 0x8000);
    if ((x & 0x7FFF) == 0) return sign;
    if ((x & 0x7C00) != 0x7C00) return sign | 0x3F80;
    return sign | ((x & 0x3FF) == 0 ? 0x7F80 : 0x7FC0);
}

// acc + Σ a[i] · b[i], 16 binary16 pairs.
inline float tensor_group_f16(const uint16_t* a, const uint16_t* b, float acc) {
    uint16_t a_kinds[kTensorGroup];
    uint16_t b_kinds[kTensorGroup];
    TensorTerm terms[kTensorGroup + 1];
    for (int i = 0; i < kTensorGroup; ++i) {
        a_kinds[i] = tensor_kind_f16(a[i]);
        b_kinds[i] = tensor_kind_f16(b[i]);
        terms[i] = tensor_product_f16(a[i], b[i]);
    }
    if (const uint32_t special = tensor_special(a_kinds, b_kinds, acc); special != 0) return float_from_bits(special);
    terms[kTensorGroup] = tensor_accumulator(acc);
    return tensor_total(terms);
}

}  // namespace verbatim::reference
